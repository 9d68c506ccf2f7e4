"""Hosted tools run within the response: the turn continues, and the stream stays well-formed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.toolset.offered import Toolset
from tests.doubles.apis.services import responses_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.doubles.tools.calculator import ANSWER, Calculator, Ready
from tools.toolbox import Offer, Toolbox

ANALYSIS_CALL = "<|channel|>analysis to=python code<|message|>{}<|call|>"
PYTHON: dict[str, Any] = {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}


def service_with(encoding: Encoding, *turns: str, timeout: float = 5, loop: bool = False) -> ResponsesService:
    toolset = Toolset(Toolbox([Offer(Calculator(), timeout=timeout)]))
    return responses_service(scripted(*turns, loop=loop), encoding=encoding, tools=Ready(toolset))


async def events_of(service: ResponsesService, **body: Any) -> list[dict[str, Any]]:
    run = await service.start(LOCAL, {"input": "2+2?", "metadata": {"__debug": True}, **PYTHON, **body})
    return [event async for batch in run for event in batch]


async def test_a_call_runs_and_the_turn_continues(encoding: Encoding) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", "2+2"), ANSWER)
    events = await events_of(service, include=["code_interpreter_call.outputs"])
    response = check_stream(events)
    call, message = response["output"]
    assert call["type"] == "code_interpreter_call"
    assert call["code"] == "2+2"
    assert call["outputs"] == [{"type": "logs", "logs": "4 (call 1)"}]
    assert message["content"][0]["text"] == "It is 4."
    kinds = [event["type"].removeprefix("response.") for event in events if event.get("output_index") == 0]
    assert kinds == [
        "output_item.added",
        "code_interpreter_call.in_progress",
        *["code_interpreter_call_code.delta"] * 3,
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
    ]


async def test_the_result_is_in_the_prompt_and_counts_as_input(encoding: Encoding) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", "2+2"), ANSWER)
    response = check_stream(await events_of(service))
    output = response["metadata"]["__debug_output"]
    assert "<|call|><|start|>python to=assistant<|channel|>analysis<|message|>4 (call 1)<|end|>" in output
    sampled = len(encoding.encode_special(ANALYSIS_CALL.replace("{}", "2+2") + ANSWER))
    assert response["usage"]["output_tokens"] == sampled
    whole = encoding.encode_special(response["metadata"]["__debug"])
    assert response["usage"]["total_tokens"] == len(whole)


async def test_a_tools_state_lives_as_long_as_the_conversation(encoding: Encoding) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", "1+1"), ANSWER, loop=True)
    first = check_stream(await events_of(service))
    second = check_stream(await events_of(service, previous_response_id=first["id"]))
    assert "2 (call 1)" in first["metadata"]["__debug_output"]
    assert "2 (call 2)" in second["metadata"]["__debug_output"]
    assert "2 (call 1)" in second["metadata"]["__debug_input"]
    alone = check_stream(await events_of(service, store=False))
    assert "2 (call 1)" in alone["metadata"]["__debug_output"]


@pytest.mark.parametrize("arguments", ["crash", "sleep", "not a sum"])
async def test_a_tools_failure_is_a_result_for_the_model(encoding: Encoding, arguments: str) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", arguments), ANSWER, timeout=0.1)
    response = check_stream(await events_of(service))
    assert response["status"] == "completed"
    assert [item.get("status") for item in response["output"]] == ["failed", "completed"]


async def test_a_call_over_the_limit_fails_and_the_turn_continues(encoding: Encoding) -> None:
    call = ANALYSIS_CALL.replace("{}", "1+1")
    service = service_with(encoding, call, call, ANSWER)
    response = check_stream(await events_of(service, max_tool_calls=1))
    assert [item.get("status") for item in response["output"]] == ["completed", "failed", "completed"]


async def test_a_call_cut_at_every_token_ends_well(encoding: Encoding) -> None:
    call = ANALYSIS_CALL.replace("{}", "2+2")
    total = len(encoding.encode_special(call + ANSWER))
    for cut in range(1, total + 1):
        service = service_with(encoding, call, ANSWER)
        response = check_stream(await events_of(service, max_output_tokens=cut))
        assert response["status"] == ("completed" if cut == total else "incomplete")
        assert response["usage"]["output_tokens"] == cut


SLIPS = [
    "<|channel|>commentary to=python code<|message|>2+2<|call|>",
    "<|channel|>commentary to=functions.python code<|message|>2+2<|call|>",
    "<|channel|>analysis to=python code<|message|>2+2<|end|>"
    "<|start|>assistant<|channel|>final<|message|>5<|return|>",
    "<|channel|>analysis to=python code<|message|>2+2",
]


@pytest.mark.parametrize("turn", SLIPS)
async def test_calls_with_slips_still_run(encoding: Encoding, turn: str) -> None:
    response = check_stream(await events_of(service_with(encoding, turn, ANSWER)))
    assert [item["type"] for item in response["output"]] == ["code_interpreter_call", "message"]
    assert response["output"][1]["content"][0]["text"] == "It is 4."


async def test_calls_are_counted_for_each_tool(encoding: Encoding) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", "1+1"), ANSWER)
    await events_of(service)
    counted = service.served.tool_counters()["python"]
    assert (counted["calls"], counted["failures"]) == (1, 0)
    assert counted["seconds"] > 0


async def test_a_call_to_a_tool_that_is_not_enabled_goes_to_the_client(encoding: Encoding) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", "2+2"))
    response = check_stream(await events_of(service, tools=[]))
    call = response["output"][0]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "python", "2+2")


async def test_a_disabled_tool_is_refused_with_the_setting_that_enables_it(encoding: Encoding) -> None:
    from gpt_oss_server.errors import ToolNotAvailable

    service = service_with(encoding, ANSWER)
    with pytest.raises(ToolNotAvailable, match="--browser"):
        await service.start(LOCAL, {"input": "hi", "tools": [{"type": "web_search"}]})
    quiet = {"type": "web_search", "external_web_access": False}
    assert await service.render(LOCAL, {"input": "hi", "tools": [quiet]})


async def test_a_client_that_disconnects_stops_the_running_tool(encoding: Encoding) -> None:
    service = service_with(encoding, ANALYSIS_CALL.replace("{}", "sleep"), ANSWER, timeout=30)
    run = await service.start(LOCAL, {"input": "hi", **PYTHON})
    waiting = asyncio.ensure_future(run.wait())
    await asyncio.sleep(0.2)
    waiting.cancel()
    began = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.get_running_loop().time() - began < 2


def test_warnings_are_json(encoding: Encoding) -> None:
    async def ask() -> dict[str, Any]:
        return check_stream(await events_of(service_with(encoding, SLIPS[1], ANSWER)))

    response = asyncio.run(ask())
    assert json.loads(response["metadata"]["__debug_warnings"])[0]["kind"]
