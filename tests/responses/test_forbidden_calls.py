"""Calls that a request forbids, on engines that enforce no grammar: no client sees one."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.errors import InvalidOutput
from tests.doubles.apis.asking import FINAL, NEXT, Asking, call
from tests.doubles.apis.chat_asking import TOOL as CHAT_TOOL
from tests.doubles.apis.chat_asking import chunks_of, completion_of, message_of, replaying
from tests.doubles.serving import scripted

THINKS = f"<|channel|>analysis<|message|>I could look.<|end|>{NEXT}"
CALL = call("functions.f", '{"city": "Oslo"}')
ANSWER = FINAL.format("Hello!")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}} for name in "fg"
]
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}


@pytest.mark.parametrize("choice", ["none", ALLOWED], ids=["none", "allowed tools"])
@pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "no tools"])
async def test_a_response_fails_before_it_shows_the_call(choice: Any, tools: Any) -> None:
    if choice is ALLOWED and tools is None:
        return
    ask = Asking(THINKS + CALL)
    response = await ask(tools=tools, tool_choice=choice)
    assert response["status"] == "failed"
    assert [item["type"] for item in response["output"]] == ["reasoning"]
    assert response["output"][0]["content"][0]["text"] == "I could look."
    assert "'functions.f', which tool_choice does not allow" in response["error"]["message"]


async def test_an_answer_is_free() -> None:
    response = await Asking(THINKS + ANSWER)(tools=TOOLS, tool_choice="none")
    assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "Hello!")


async def test_a_cut_header_of_a_forbidden_call_shows_nothing() -> None:
    ask = Asking(THINKS + CALL)
    for limit in range(9, 22):
        response = await ask(tools=TOOLS, tool_choice="none", max_output_tokens=limit)
        assert {item["type"] for item in response["output"]} <= {"reasoning"}


@pytest.mark.parametrize("forbidden", [call("functions.f", "{}"), CALL], ids=["whole", "begun"])
async def test_the_next_turn_reads_no_call_without_a_result(forbidden: str) -> None:
    ask = Asking(forbidden, ANSWER)
    failed = await ask(tools=TOOLS, tool_choice="none")
    prompt = await ask.prompt(previous_response_id=failed["id"], input="And now?", tools=TOOLS)
    assert prompt.count("<|start|>functions.f to=assistant") == prompt.count("to=functions.f")


@pytest.mark.parametrize("per_step", [1, 3, 100])
async def test_a_chat_completion_fails_before_it_shows_the_call(per_step: int) -> None:
    body: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "none"}
    chunks = await chunks_of(replaying(THINKS + CALL, per_step=per_step), **body)
    assert chunks[-1]["error"]["code"] == "invalid_output"
    deltas = [choice["delta"] for chunk in chunks[:-1] for choice in chunk["choices"]]
    assert not any("tool_calls" in delta for delta in deltas)
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "I could look."
    with pytest.raises(InvalidOutput, match="tool_choice does not allow"):
        await completion_of(replaying(THINKS + CALL, per_step=per_step), **body)
    old = {"functions": [CHAT_TOOL["function"]], "function_call": "none"}
    with pytest.raises(InvalidOutput, match="does not allow"):
        await completion_of(replaying(THINKS + CALL, per_step=per_step), **old)


async def test_a_started_answer_may_still_forbid_calls() -> None:
    engine = scripted(" world!<|return|>")
    body: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "none", "response_prefix": "Hello,"}
    assert message_of(await completion_of(engine, **body))["content"] == " world!"
