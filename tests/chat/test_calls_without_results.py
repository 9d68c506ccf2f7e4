"""Calls and their results in a chat's messages: each whole call needs one, and the last of several counts."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from tests.doubles.apis.chat_asking import TOOL, replaying, service_of

USER = {"role": "user", "content": "Weather?"}


def asked(*ids: str, arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}
        for call_id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def prompt_of(*messages: Any) -> str:
    service = service_of(replaying("x"))
    body = {"messages": [USER, *messages], "tools": [TOOL]}
    return service.served.model.encoding.decode(await service.prompt(LOCAL, body))


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
        await prompt_of(*messages)


async def test_a_call_that_was_cut_off_is_noted_in_place_of_its_result() -> None:
    prompt = await prompt_of(asked("a", arguments='{"city": "Os'), USER)
    note = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>This call was cut off"
    assert prompt.index('{"city": "Os<|call|>') < prompt.index(note)


async def test_of_two_results_the_last_counts_and_an_id_may_return() -> None:
    first = [asked("a"), result("a", "one"), result("a", "two")]
    prompt = await prompt_of(*first, asked("a"), result("a", "three"))
    assert [text in prompt for text in ("one", "two", "three")] == [False, True, True]


async def test_a_result_may_name_its_function_and_arguments_may_be_an_object() -> None:
    call = asked("a", arguments={"city": "Zürich"})
    prompt = await prompt_of(call, {"role": "tool", "name": "f", "content": "sunny"})
    assert '<|message|>{"city":"Zürich"}<|call|>' in prompt
    assert "sunny" in prompt


async def test_a_call_that_awaits_approval_needs_no_result() -> None:
    request = {"server_label": "echoes", "name": "f"}
    assert "Weather?" in await prompt_of(asked("a", mcp_approval_request=request), USER)
