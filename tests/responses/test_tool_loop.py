"""Hosted tools run within the response: the turn continues, and the stream stays well-formed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ToolNotAvailable
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import Asking
from tests.doubles.serving import scripted
from tests.doubles.tools.calculator import ANSWER
from tests.responses.conftest import PYTHON, with_tool

CALL = "<|channel|>analysis to=python code<|message|>{}<|call|>"
SUM = CALL.format("2+2")
BODY: dict[str, Any] = {"input": "2+2?", "metadata": {"__debug": True}, "tools": [PYTHON]}


def asking(*turns: str, timeout: float = 5, loop: bool = False) -> Asking:
    return with_tool(scripted(*turns, loop=loop), timeout=timeout)


async def test_a_call_runs_and_the_turn_continues_with_its_result(encoding: Encoding) -> None:
    ask = asking(SUM, ANSWER)
    response = await ask(**BODY, include=["code_interpreter_call.outputs"])
    call, message = response["output"]
    assert (call["type"], call["code"]) == ("code_interpreter_call", "2+2")
    assert call["outputs"] == [{"type": "logs", "logs": "4 (call 1)"}]
    assert message["content"][0]["text"] == "It is 4."
    kinds = [e["type"].removeprefix("response.") for e in ask.events if e.get("output_index") == 0]
    written = [*["code_interpreter_call_code.delta"] * 3, "code_interpreter_call_code.done"]
    steps = ["code_interpreter_call.interpreting", "code_interpreter_call.completed"]
    begun = ["output_item.added", "code_interpreter_call.in_progress"]
    assert kinds == [*begun, *written, *steps, "output_item.done"]
    result = "<|call|><|start|>python to=assistant<|channel|>analysis<|message|>4 (call 1)<|end|>"
    assert result in response["metadata"]["__debug_output"]
    assert response["usage"]["output_tokens"] == len(encoding.encode_special(SUM + ANSWER))
    whole = encoding.encode_special(response["metadata"]["__debug"])
    assert response["usage"]["total_tokens"] == len(whole)
    counted = ask.service.served.tool_counters()["python"]
    assert (counted["calls"], counted["failures"]) == (1, 0)
    assert counted["seconds"] > 0


async def test_a_tools_state_lives_as_long_as_the_conversation() -> None:
    ask = asking(SUM, ANSWER, loop=True)
    first = await ask(**BODY)
    second = await ask(**BODY, previous_response_id=first["id"])
    assert "4 (call 1)" in first["metadata"]["__debug_output"]
    assert "4 (call 2)" in second["metadata"]["__debug_output"]
    assert "4 (call 1)" in second["metadata"]["__debug_input"]
    assert "4 (call 1)" in (await ask(**BODY, store=False))["metadata"]["__debug_output"]


async def test_a_call_over_the_limit_fails_and_the_turn_continues() -> None:
    response = await asking(SUM, CALL.format("1+1"), ANSWER)(**BODY, max_tool_calls=1)
    assert [item.get("status") for item in response["output"]] == ["completed", "failed", "completed"]


async def test_a_call_cut_at_every_token_ends_well(encoding: Encoding) -> None:
    total = len(encoding.encode_special(SUM + ANSWER))
    for cut in range(1, total + 1):
        response = await asking(SUM, ANSWER)(**BODY, max_output_tokens=cut)
        assert response["status"] == ("completed" if cut == total else "incomplete")
        assert response["usage"]["output_tokens"] == cut


SLIPS = [
    "<|channel|>commentary to=python code<|message|>2+2<|call|>",
    "<|channel|>commentary to=functions.python code<|message|>2+2<|call|>",
    SUM.replace("<|call|>", "<|end|>") + "<|start|>assistant<|channel|>final<|message|>5<|return|>",
    SUM.removesuffix("<|call|>"),
]


@pytest.mark.parametrize("turn", SLIPS)
async def test_calls_with_slips_still_run(turn: str) -> None:
    response = await asking(turn, ANSWER)(**BODY)
    call, message = response["output"]
    assert (call["type"], message["content"][0]["text"]) == ("code_interpreter_call", "It is 4.")
    assert turn != SLIPS[1] or json.loads(response["metadata"]["__debug_warnings"])[0]["kind"]


async def test_a_call_to_a_tool_that_is_not_enabled_goes_to_the_client() -> None:
    call = (await asking(SUM)(input="2+2?"))["output"][0]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "python", "2+2")


async def test_a_disabled_tool_is_refused_with_the_setting_that_enables_it() -> None:
    ask, search = asking(ANSWER), {"type": "web_search"}
    with pytest.raises(ToolNotAvailable, match="--browser"):
        await ask(tools=[search])
    assert await ask.prompt(tools=[{**search, "external_web_access": False}])


async def test_a_client_that_disconnects_stops_the_running_tool() -> None:
    run = await asking(CALL.format("sleep"), ANSWER, timeout=30).service.start(LOCAL, BODY)
    waiting = asyncio.ensure_future(run.wait())
    await asyncio.sleep(0.2)
    waiting.cancel()
    began = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.get_running_loop().time() - began < 2
