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


@pytest.mark.parametrize(
    ("tools", "choice"),
    [(TOOLS, "none"), (None, "none"), (TOOLS, ALLOWED)],
    ids=["none", "no tools", "allowed tools"],
)
async def test_a_response_fails_before_it_shows_the_call(tools: Any, choice: Any) -> None:
    response = await Asking(THINKS + CALL)(tools=tools, tool_choice=choice)
    assert response["status"] == "failed"
    (reasoning,) = response["output"]
    assert (reasoning["type"], reasoning["content"][0]["text"]) == ("reasoning", "I could look.")
    assert "'functions.f', which tool_choice does not allow" in response["error"]["message"]


async def test_an_answer_is_free_even_one_that_the_request_begins() -> None:
    response = await Asking(THINKS + ANSWER)(tools=TOOLS, tool_choice="none")
    assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "Hello!")
    body: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "none", "response_prefix": "Hello,"}
    completion = await completion_of(scripted(" world!<|return|>"), **body)
    assert message_of(completion)["content"] == " world!"


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
    engine = replaying(THINKS + CALL, per_step=per_step)
    body: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "none"}
    chunks = await chunks_of(engine, **body)
    assert chunks[-1]["error"]["code"] == "invalid_output"
    deltas = [choice["delta"] for chunk in chunks[:-1] for choice in chunk["choices"]]
    assert not any("tool_calls" in delta for delta in deltas)
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "I could look."
    for request in (body, {"functions": [CHAT_TOOL["function"]], "function_call": "none"}):
        with pytest.raises(InvalidOutput, match="does not allow"):
            await completion_of(engine, **request)
