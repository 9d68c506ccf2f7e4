"""The messages of a chat in the prompt: their order and roles; each whole call needs a result.
The official `openai` SDK, unmodified, against a real server: chat completions, also stored ones.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.settings import Settings
from tests.doubles.apis import chat_asking
from tests.doubles.apis.api_client import client_of
from tests.doubles.apis.chat_asking import CALL, NEXT, TOOL, replaying
from tests.doubles.serving import scripted, serving

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
    return await chat_asking.prompt_of(messages=messages)


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
    for text in ("commentary<|message|>Let me look.", "commentary<|message|>I need the weather."):
        assert f"<|channel|>{text}<|end|>" in prompt
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


THINKS = "<|channel|>analysis<|message|>I need f.<|end|>" + NEXT
HELLO = "<|channel|>final<|message|>Hello!<|return|>"
PREAMBLE = "<|channel|>commentary<|message|>A moment.<|end|>" + NEXT
ASK: Any = [{"role": "user", "content": "Weather?"}]
TOOLS: Any = [TOOL]


def test_the_stream_helper_accumulates_the_same_completion_as_create() -> None:
    body: Any = {"model": "scripted", "messages": ASK, "tools": TOOLS, "logprobs": True}
    with client_of(THINKS + PREAMBLE + CALL, loop=True) as client:
        whole = client.chat.completions.create(**body)
        with client.chat.completions.stream(**body) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
    arguments = "tool_calls.function.arguments"
    assert {"content.delta", f"{arguments}.delta", f"{arguments}.done"} <= kinds
    for made in (final, whole):
        message = made.choices[0].message.to_dict()
        assert (message["content"], message["reasoning"]) == ("A moment.", "I need f.")
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"city":"Oslo"}'
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "tool_calls"


def test_an_unknown_model_and_too_long_a_conversation_are_refused() -> None:
    long: Any = [{"role": "user", "content": "hello " * 140_000}]
    with client_of(HELLO) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="gpt-5", messages=ASK)
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="scripted", messages=long, stream=True)
    assert unknown.value.code == "model_not_found"
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")


def test_the_stream_has_only_data_lines_and_ends_with_done() -> None:
    with serving(scripted(HELLO)) as url:
        response = httpx.post(f"{url}/chat/completions", json={"messages": ASK, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.removesuffix("\n\n").split("\n\n")
    assert frames[-1] == "data: [DONE]"
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    assert json.loads(frames[0][6:])["choices"][0]["delta"] == {"role": "assistant", "content": ""}


FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "f", "schema": {"type": "object"}}}


def test_a_stream_with_a_wrong_form_ends_with_an_error_and_done_and_the_sdk_raises() -> None:
    body: Any = {"messages": ASK, "response_format": FORMAT, "stream": True}
    with client_of(HELLO, loop=True) as client:
        response = httpx.post(f"{client.base_url}chat/completions", json=body)
        stream = client.chat.completions.create(model="scripted", **body)
        with pytest.raises(openai.APIError, match="answer") as caught:
            list(stream)
    *_, error, done = response.text.removesuffix("\n\n").split("\n\n")
    assert json.loads(error[6:])["error"]["code"] == caught.value.code == "invalid_output"
    assert done == "data: [DONE]"


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_an_engine_failure_is_an_error_at_the_end_of_a_stream_too(path: str) -> None:
    body = {"messages": ASK} if path.startswith("chat") else {"prompt": "Weather?"}
    with serving(replaying(HELLO, fails_after=4)) as url:
        whole = httpx.post(f"{url}/{path}", json=body)
        response = httpx.post(f"{url}/{path}", json={**body, "stream": True})
    assert whole.status_code == 503
    *_, error, done = response.text.removesuffix("\n\n").split("\n\n")
    for failed in (whole.json(), json.loads(error[6:])):
        assert "the card fell out" in failed["error"]["message"]
    assert done == "data: [DONE]"


BODY: Any = {"model": "scripted", "messages": ASK}


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[openai.OpenAI]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    settings = Settings(store=store, served_model_name=("other",))
    with client_of(THINKS + HELLO, loop=True, settings=settings) as client:
        yield client


def test_it_is_retrieved_as_it_was_sent_where_the_request_wishes_it(client: openai.OpenAI) -> None:
    completions = client.chat.completions
    made = completions.create(**BODY, store=True, metadata={"topic": "demo"})
    found = completions.retrieve(made.id)
    assert found.to_dict() == {**made.to_dict(), "metadata": {"topic": "demo"}}
    assert found.choices[0].message.content == "Hello!"
    first, *_ = completions.create(**BODY, store=True, stream=True)
    streamed = completions.retrieve(first.id)
    assert streamed.to_dict()["choices"] == found.to_dict()["choices"]
    assert streamed.usage.completion_tokens > 0
    made = completions.create(**BODY)
    with pytest.raises(openai.NotFoundError, match="created without store=true"):
        completions.retrieve(made.id)


def test_they_are_listed_by_page_model_and_metadata(client: openai.OpenAI) -> None:
    completions = client.chat.completions
    evens = ({"even": str(number % 2 == 0)} for number in range(5))
    ids = [completions.create(**BODY, store=True, metadata=even).id for even in evens]
    other = completions.create(model="other", messages=ASK, store=True).id
    assert [listed.id for listed in completions.list(limit=2)] == [*ids, other]
    assert [listed.id for listed in completions.list(order="desc")] == [other, *reversed(ids)]
    assert [listed.id for listed in completions.list(metadata={"even": "True"})] == ids[::2]
    assert [listed.id for listed in completions.list(model="other")] == [other]
    page = completions.list(limit=4)
    assert (len(page.data), page.has_more) == (4, True)
    with pytest.raises(openai.BadRequestError, match="`after`"):
        completions.list(after="chatcmpl-unknown")


def test_its_metadata_is_changed_and_it_is_deleted(client: openai.OpenAI) -> None:
    completions = client.chat.completions
    made = completions.create(**BODY, store=True).id
    changed = completions.update(made, metadata={"topic": "other"})
    assert changed.to_dict()["metadata"] == {"topic": "other"}
    assert completions.retrieve(made).to_dict() == changed.to_dict()
    assert completions.delete(made).deleted is True
    for call in (completions.retrieve, completions.delete):
        with pytest.raises(openai.NotFoundError):
            call(made)


def test_its_messages_are_listed(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "Hi"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    made = client.chat.completions.create(**{**BODY, "messages": messages}, store=True)
    found = [message.to_dict() for message in client.chat.completions.messages.list(made.id, limit=1)]
    contents = [(message["role"], message["content"], message["content_parts"]) for message in found]
    assert contents == [("system", "Be brief.", None), ("user", None, parts)]
    assert len({message["id"] for message in found}) == 2
