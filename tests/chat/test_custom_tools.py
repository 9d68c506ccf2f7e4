"""Custom tools in Chat Completions: the model's text is the input, in chunks and in whole completions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError
from tests.doubles.apis.chat_asking import (
    HELLO,
    SAY,
    TOOL,
    check_chunks,
    chunks_of,
    completion_of,
    message_of,
    replaying,
    service_of,
)
from tests.doubles.lints import compare

SNAPSHOTS = Path(__file__).parent / "snapshots"
CALL = "<|channel|>commentary to=functions.say code<|message|>{}<|call|>"
CHOICE = {"type": "custom", "custom": {"name": "say"}}


async def test_the_stream_of_a_custom_call() -> None:
    chunks = await chunks_of(replaying(CALL.format("good morning")), tools=[SAY])
    # The SDK's chunk type knows only calls of functions; its completion type knows both kinds.
    message = check_chunks(chunks, sdk_types=False)["choices"][0]
    compare(SNAPSHOTS / "custom_call.jsonl", chunks)
    (call,) = message["message"]["tool_calls"]
    assert call["custom"] == {"name": "say", "input": "good morning"}
    assert message["finish_reason"] == "tool_calls"


async def test_a_completion_without_streaming_holds_the_same_call() -> None:
    completion = await completion_of(replaying(CALL.format("good morning")), tools=[SAY, TOOL])
    (call,) = message_of(completion)["tool_calls"]
    assert (call["type"], call["custom"]["input"]) == ("custom", "good morning")


async def test_an_input_that_does_not_match_is_an_error() -> None:
    with pytest.raises(ApiError, match="does not follow its grammar") as error:
        await completion_of(replaying(CALL.format("LOUD")), tools=[SAY])
    assert error.value.code == "invalid_output"


async def test_tool_choice_names_a_custom_tool() -> None:
    chosen = await completion_of(replaying(CALL.format("hello")), tools=[SAY, TOOL], tool_choice=CHOICE)
    assert message_of(chosen)["tool_calls"][0]["type"] == "custom"
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CHOICE]}}
    await completion_of(replaying(CALL.format("hello")), tools=[SAY, TOOL], tool_choice=allowed)
    with pytest.raises(ApiError, match="called none"):
        await completion_of(replaying(HELLO), tools=[SAY], tool_choice=CHOICE)


async def test_a_custom_call_and_its_result_are_rendered_as_history() -> None:
    first = await completion_of(replaying(CALL.format("hello")), tools=[SAY])
    message = message_of(first)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Said."}
    body = {"messages": [{"role": "user", "content": "hi"}, message, result], "tools": [SAY]}
    service = service_of(replaying(HELLO))
    prompt = service.served.model.encoding.decode(await service.prompt(LOCAL, body))
    assert "to=functions.say<|message|>hello<|call|>" in prompt
    assert "<|start|>functions.say to=assistant<|channel|>commentary<|message|>Said.<|end|>" in prompt


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "custom", "name": "say"}, "tools[0].custom"),
    ({"type": "custom", "custom": {}}, "tools[0].custom.name"),
    (
        {
            "type": "custom",
            "custom": {"name": "a", "format": {"type": "grammar", "grammar": {"syntax": "x"}}},
        },
        "tools[0].custom.format.grammar.syntax",
    ),
    (
        {
            "type": "custom",
            "custom": {
                "name": "a",
                "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "(a"}},
            },
        },
        "tools[0].custom.format.grammar.definition",
    ),
    ({"type": "shell"}, "tools"),
    ({"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}, "tools"),
]


@pytest.mark.parametrize(("tool", "param"), REFUSED)
async def test_an_error_names_the_field_as_the_client_wrote_it(tool: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        await completion_of(replaying(HELLO), tools=[tool])
    assert (refused.value.status, refused.value.param) == (400, param)
