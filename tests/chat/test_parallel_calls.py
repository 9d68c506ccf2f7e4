"""Several calls in one completion, where the request allows them."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
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
)
from tests.doubles.apis.chat_tools import CALL as SUM
from tests.doubles.apis.chat_tools import serving_tools
from tests.doubles.serving import scripted

TWO = CALL + NEXT + CALL.replace("Oslo", "Paris")
CUSTOM = "<|channel|>commentary to=functions.say code<|message|>good day<|call|>"


@pytest.mark.parametrize("allowed", [True, False, None])
async def test_only_a_request_that_allows_parallel_calls_gets_several(allowed: bool | None) -> None:
    completion = await completion_of(scripted(TWO), tools=[TOOL], parallel_tool_calls=allowed)
    calls = message_of(completion)["tool_calls"]
    cities = ["Oslo", "Paris"] if allowed else ["Oslo"]
    assert [call["function"]["arguments"] for call in calls] == [f'{{"city":"{city}"}}' for city in cities]
    assert len({call["id"] for call in calls}) == len(calls)
    assert completion["choices"][0]["finish_reason"] == "tool_calls"


async def test_each_call_has_its_index_in_the_stream() -> None:
    turn = scripted(TWO + NEXT + CUSTOM)
    chunks = await chunks_of(turn, tools=[TOOL, SAY], parallel_tool_calls=True)
    indices = [
        call["index"]
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2}
    calls = message_of(check_chunks(chunks, sdk_types=False))["tool_calls"]
    assert [call["type"] for call in calls] == ["function", "function", "custom"]


async def test_hosted_tools_run_in_parallel_and_the_answer_follows() -> None:
    service, _ = serving_tools(SUM + NEXT + SUM.replace("2+2", "3+4"), HELLO)
    tools: list[dict[str, Any]] = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    run = await service.start(LOCAL, {**HI, "tools": tools, "parallel_tool_calls": True})
    message = message_of(await run.wait())
    assert [made["output"] for made in message["executed_tools"]] == ["4 (call 1)", "7 (call 2)"]
    assert [made["index"] for made in message["executed_tools"]] == [0, 1]
    assert message["content"] == "Hello 東京 🧠!"


async def test_functions_have_room_for_one_call() -> None:
    completion = await completion_of(scripted(TWO), functions=[TOOL["function"]], parallel_tool_calls=True)
    assert message_of(completion)["function_call"]["arguments"] == '{"city":"Oslo"}'
