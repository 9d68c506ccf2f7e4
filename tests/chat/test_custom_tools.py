"""Custom tools in Chat Completions, and several calls in one completion, where the request allows them."""

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.errors import ApiError
from tests.doubles.apis.chat_asking import (
    CALL,
    HELLO,
    HI,
    NEXT,
    SAY,
    TOOL,
    check_chunks,
    chunks_of,
    completion_of,
    message_of,
    prompt_of,
    replaying,
)
from tests.doubles.lints import compare
from tests.doubles.serving import scripted

SNAPSHOTS = Path(__file__).parent / "snapshots"
CUSTOM = "<|channel|>commentary to=functions.say code<|message|>{}<|call|>"
CHOICE = {"type": "custom", "custom": {"name": "say"}}


async def test_the_stream_of_a_custom_call() -> None:
    chunks = await chunks_of(replaying(CUSTOM.format("good morning")), tools=[SAY])
    # The SDK's chunk type knows only calls of functions; its completion type knows both kinds.
    (choice,) = check_chunks(chunks, sdk_types=False)["choices"]
    compare(SNAPSHOTS / "custom_call.jsonl", chunks)
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "say", "input": "good morning"})
    assert choice["finish_reason"] == "tool_calls"
    whole = await completion_of(replaying(CUSTOM.format("good morning")), tools=[SAY, TOOL])
    assert message_of(whole)["tool_calls"][0]["custom"] == call["custom"]


async def test_an_input_that_does_not_match_is_an_error() -> None:
    with pytest.raises(ApiError, match="does not follow its grammar") as error:
        await completion_of(replaying(CUSTOM.format("LOUD")), tools=[SAY])
    assert error.value.code == "invalid_output"


async def test_tool_choice_names_a_custom_tool() -> None:
    chosen = await completion_of(replaying(CUSTOM.format("hello")), tools=[SAY, TOOL], tool_choice=CHOICE)
    assert message_of(chosen)["tool_calls"][0]["type"] == "custom"
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CHOICE]}}
    await completion_of(replaying(CUSTOM.format("hello")), tools=[SAY, TOOL], tool_choice=allowed)
    with pytest.raises(ApiError, match="called none"):
        await completion_of(replaying(HELLO), tools=[SAY], tool_choice=CHOICE)


async def test_a_custom_call_and_its_result_are_rendered_as_history() -> None:
    first = await completion_of(replaying(CUSTOM.format("hello")), tools=[SAY])
    message = message_of(first)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Said."}
    prompt = await prompt_of(messages=[*HI["messages"], message, result], tools=[SAY])
    assert "to=functions.say<|message|>hello<|call|>" in prompt
    assert "<|start|>functions.say to=assistant<|channel|>commentary<|message|>Said.<|end|>" in prompt


FORMAT = "tools[0].custom.format"


def custom(**grammar: str) -> dict[str, Any]:
    return {**SAY, "custom": {**SAY["custom"], "format": {"type": "grammar", "grammar": grammar}}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "custom", "name": "say"}, "tools[0].custom"),
    ({"type": "custom", "custom": {}}, "tools[0].custom.name"),
    (custom(syntax="x"), f"{FORMAT}.syntax"),
    (custom(syntax="regex", definition="(a"), f"{FORMAT}.definition"),
    ({"type": "shell"}, "tools"),
    ({"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}, "tools"),
]


@pytest.mark.parametrize(("tool", "param"), REFUSED)
async def test_an_error_names_the_field_as_the_client_wrote_it(tool: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        await completion_of(replaying(HELLO), tools=[tool])
    assert (refused.value.status, refused.value.param) == (400, param)


TWO = CALL + NEXT + CALL.replace("Oslo", "Paris")


@pytest.mark.parametrize("allowed", [True, False, None])
async def test_only_a_request_that_allows_parallel_calls_gets_several(allowed: bool | None) -> None:
    completion = await completion_of(scripted(TWO), tools=[TOOL], parallel_tool_calls=allowed)
    calls = message_of(completion)["tool_calls"]
    cities = ["Oslo", "Paris"] if allowed else ["Oslo"]
    assert [call["function"]["arguments"] for call in calls] == [f'{{"city":"{city}"}}' for city in cities]
    assert len({call["id"] for call in calls}) == len(calls)
    assert completion["choices"][0]["finish_reason"] == "tool_calls"


async def test_each_call_has_its_index_in_the_stream() -> None:
    turn = scripted(TWO + NEXT + CUSTOM.format("good day"))
    chunks = await chunks_of(turn, tools=[TOOL, SAY], parallel_tool_calls=True)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    indices = [call["index"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2}
    calls = message_of(check_chunks(chunks, sdk_types=False))["tool_calls"]
    assert [call["type"] for call in calls] == ["function", "function", "custom"]
