"""The messages of a chat in the prompt: their order and roles; each whole call needs a result."""

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import load_encoding
from tests.doubles.apis.chat_asking import replaying, service_of

USER: dict[str, Any] = {"role": "user", "content": "Weather?"}


def asked(*ids: str, arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    called = {"name": "f", "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": called, **more} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def calls(**cities: str) -> dict[str, Any]:
    made = [asked(call_id, arguments=f'{{"city":"{city}"}}') for call_id, city in cities.items()]
    return {**made[0], "tool_calls": [call["tool_calls"][0] for call in made]}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def prompt_of(*messages: dict[str, Any]) -> str:
    service = service_of(replaying("<|channel|>final<|message|>Hi<|return|>"))
    return load_encoding().decode(await service.prompt(LOCAL, {"messages": messages}))


async def test_hosted_calls_stay_in_the_prompt_until_an_answer() -> None:
    ran = {"index": 0, "type": "code_interpreter", "name": "python", "arguments": "2+2", "output": "4"}
    read = {"index": 1, "type": "mcp", "name": "files.read", "arguments": "{}", "output": "A text."}
    others = {"index": 2, "type": "search", "arguments": "as another server has it", "output": "?"}
    message = {**calls(a="Paris"), "reasoning": "I compute.", "executed_tools": [ran, read, others]}
    turn = (USER, message, result("a", "grey"))
    prompt = await prompt_of(*turn)
    assert (
        "<|start|>assistant<|channel|>analysis<|message|>I compute.<|end|>"
        "<|start|>assistant<|channel|>analysis to=python code<|message|>2+2<|call|>"
        "<|start|>python to=assistant<|channel|>analysis<|message|>4<|end|>"
        "<|start|>assistant<|channel|>commentary to=files.read <|constrain|>json<|message|>{}<|call|>"
        "<|start|>files.read to=assistant<|channel|>commentary<|message|>A text.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f "
    ) in prompt
    assert "another server" not in prompt
    later = await prompt_of(*turn, {"role": "assistant", "content": "Grey."}, USER)
    assert "2+2" not in later
    assert "A text." not in later
    assert "Paris" in later


async def test_results_come_in_the_order_of_their_calls() -> None:
    begun = (USER, calls(a="Paris", b="Rome"))
    in_order = await prompt_of(*begun, result("a", "grey"), result("b", "blue"))
    assert in_order.index("grey") < in_order.index("blue")
    assert await prompt_of(*begun, result("b", "blue"), result("a", "grey")) == in_order


async def test_text_in_the_message_before_a_call_is_a_preamble() -> None:
    preamble = {"role": "assistant", "content": "Let me look."}
    thought = {"role": "assistant", "content": "I need the weather.", "reasoning": "Hm."}
    prompt = await prompt_of(USER, thought, preamble, calls(a="Paris"), result("a", "grey"))
    assert "<|channel|>commentary<|message|>Let me look.<|end|>" in prompt
    assert "<|channel|>commentary<|message|>I need the weather.<|end|>" in prompt
    assert "<|channel|>analysis<|message|>Hm.<|end|>" in prompt
    answered = await prompt_of(USER, preamble, USER, calls(a="Paris"), result("a", "grey"))
    assert "<|channel|>final<|message|>Let me look." in answered


async def test_headers_name_the_user_if_several_users_take_part() -> None:
    alice = {"role": "user", "name": "alice", "content": "I like tea."}
    bob = {"role": "user", "name": "Bob <|end|> B.", "content": "I don't."}
    prompt = await prompt_of(alice, bob, USER)
    assert "<|start|>user:alice<|message|>I like tea.<|end|>" in prompt
    assert "<|start|>user:Bob_end_B.<|message|>I don't.<|end|>" in prompt
    assert "<|start|>user<|message|>Weather?<|end|>" in prompt
    assert "alice" not in await prompt_of(alice, {**alice, "content": "Hi"}), "one user needs no name"


@pytest.mark.parametrize(
    "messages",
    [
        [asked("a")],
        [asked("a"), USER],
        [asked("a", "b"), result("a", "1")],
        [asked("a"), result("a", "1"), asked("b"), USER],
    ],
    ids=range(4),
)
async def test_a_call_without_a_result_is_refused_as_at_openai(messages: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"must be followed by tool messages .* response messages: [ab]"):
        await prompt_of(USER, *messages)


async def test_a_call_that_was_cut_off_is_noted_in_place_of_its_result() -> None:
    prompt = await prompt_of(USER, asked("a", arguments='{"city": "Os'), USER)
    note = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>This call was cut off"
    assert prompt.index('{"city": "Os<|call|>') < prompt.index(note)


async def test_of_two_results_the_last_counts_and_an_id_may_return() -> None:
    first = [asked("a"), result("a", "one"), result("a", "two")]
    prompt = await prompt_of(USER, *first, asked("a"), result("a", "three"))
    assert [text in prompt for text in ("one", "two", "three")] == [False, True, True]


async def test_a_result_may_name_its_function_and_arguments_may_be_an_object() -> None:
    call = asked("a", arguments={"city": "Zürich"})
    prompt = await prompt_of(USER, call, {"role": "tool", "name": "f", "content": "sunny"})
    assert '<|message|>{"city":"Zürich"}<|call|>' in prompt
    assert "sunny" in prompt


async def test_a_call_that_awaits_approval_needs_no_result() -> None:
    request = {"server_label": "echoes", "name": "f"}
    assert "Weather?" in await prompt_of(USER, asked("a", mcp_approval_request=request), USER)
