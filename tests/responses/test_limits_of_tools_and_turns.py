"""The limits of a response: tool calls, room for the answer, approvals, and how a stopped call ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.asking import Asking
from tests.doubles.apis.mcp_asking import ANSWER, call, tool
from tests.doubles.apis.mcp_asking import Asking as McpAsking
from tests.doubles.apis.services import conversations_of
from tests.doubles.lints import check_stream
from tests.doubles.turns import TurnsEngine

MCP: dict[str, Any] = {"allow_private_hosts": True}


async def test_approved_calls_do_not_count_as_the_models(encoding: Encoding, url: str) -> None:
    turns = (call("echo", text="a"), call("echo", text="b"), ANSWER)
    async with McpAsking(encoding, *turns, **MCP) as ask:
        tools = [tool(url, require_approval="always")]
        first = await ask(tools=tools)
        consent = {"type": "mcp_approval_response", "approve": True}
        request = first["output"][-1]["id"]
        second = await ask(
            tools=tools,
            previous_response_id=first["id"],
            input=[{**consent, "approval_request_id": request}],
            max_tool_calls=1,
        )
        assert second["output"][-1]["type"] == "mcp_approval_request"
        third = await ask(
            tools=tools,
            previous_response_id=second["id"],
            input=[{**consent, "approval_request_id": second["output"][-1]["id"]}],
            max_tool_calls=1,
        )
        made = [item["status"] for item in third["output"] if item["type"] == "mcp_call"]
        assert made == ["completed"]


async def test_a_calls_arguments_are_done_once_however_it_ends(encoding: Encoding, url: str) -> None:
    async with McpAsking(encoding, call("slow", seconds=20), ANSWER, **MCP) as ask:
        run = await ask.service.start(LOCAL, {"input": "Hi", "tools": [tool(url)], "background": True})
        log = await ask.service.run_in_background(run)
        async for batch in log.read():
            if b"mcp_call_arguments.done" in b"".join(batch):
                break
        await ask.service.stored(LOCAL).cancel(run.id)
        lines = [line for event in log._events for line in event.decode().splitlines()]
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        response = check_stream(events)  # checks that each text is done once
        assert response["output"][-1]["status"] == "failed"
        assert "response.mcp_call.failed" in [event["type"] for event in events]


async def test_an_ended_background_response_can_be_continued_immediately(
    encoding: Encoding, url: str
) -> None:
    async with McpAsking(encoding, call("echo", text="a"), ANSWER, ANSWER, **MCP) as ask:
        run = await ask.service.start(LOCAL, {"input": "Hi", "tools": [tool(url)], "background": True})
        log = await ask.service.run_in_background(run)
        async for batch in log.read():
            if b"response.completed" in b"".join(batch):
                break
        again = await ask(input="More", previous_response_id=run.id)
        assert again["status"] == "completed"


async def test_a_conversation_near_the_limit_leaves_room_for_the_requested_answer() -> None:
    text = "<|channel|>final<|message|>An answer of some more words than one or two, long enough.<|return|>"
    here = Api(TurnsEngine(load_encoding(), text, context=300))
    previous, cut = None, 0
    for turn in range(14):
        response = await here.create(
            input=f"Question {turn} " + "word " * 12,
            truncation="auto",
            max_output_tokens=40,
            previous_response_id=previous,
        )
        previous = response["id"]
        cut += response["status"] != "completed"
        assert response["usage"]["input_tokens"] <= 260
    assert cut == 0


@pytest.mark.parametrize("limit", ["0", "1000", "9" * 5000])
async def test_an_invalid_limit_is_a_400(limit: str) -> None:
    here = Api(TurnsEngine(load_encoding(), ANSWER))
    response = await here.create()
    refused = await here.refused(f"/responses/{response['id']}/input_items?limit={limit}", method="GET")
    assert (refused["status"], refused["param"]) == (400, "limit")
    refused = await here.refused(f"/responses/{response['id']}/input_items?include=x", method="GET")
    assert refused["status"] == 400


async def test_numbers_out_of_range_are_refused_as_json() -> None:
    here = Api(TurnsEngine(load_encoding(), ANSWER))
    body = b'{"input": [{"role": "user", "content": "x", "foo": 1e999}]}'
    answer = await here.client.post("/responses", content=body)
    assert answer.status_code == 400
    assert "out of the range" in answer.json()["error"]["message"]


@pytest.mark.parametrize("strict", [None, False])
async def test_the_model_follows_the_unenforceable_part_of_a_schema_that_is_not_strict(
    strict: bool | None,
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "mail": {"type": "string", "pattern": "^(?!a).*@"},
            "n": {"type": "integer"},
        },
        "required": ["n"],
        "not": {"required": ["x"]},
    }
    given = {"type": "json_schema", "name": "it", "schema": schema}
    given |= {} if strict is None else {"strict": strict}
    fits, fails = ('{"n": 1, "tags": []}', '{"n": "one"}')
    turn = "<|channel|>final<|message|>{}<|return|>"
    assert (await Asking(turn.format(fits))(text={"format": given}))["status"] == "completed"
    run = await Asking(turn.format(fails)).service.start(LOCAL, {"input": "Hi", "text": {"format": given}})
    assert "invalid_output" in (await run.wait())["error"]["message"], "the enforceable part is enforced"
    with pytest.raises(InvalidRequest, match="not enforced"):
        await Asking(turn).service.start(
            LOCAL, {"input": "Hi", "text": {"format": {**given, "strict": True}}}
        )
    broken = {**given, "schema": {"type": "objekt"}}
    with pytest.raises(InvalidRequest, match="must be one of"):
        await Asking(turn).service.start(LOCAL, {"input": "Hi", "text": {"format": broken}})


async def test_a_response_that_fails_before_the_call_does_not_use_up_its_approval(
    encoding: Encoding, url: str
) -> None:
    no_summary = "<|channel|>final<|message|><|return|>"
    async with McpAsking(encoding, call("echo", text="a"), no_summary, ANSWER, **MCP) as ask:
        tools = [tool(url, require_approval="always")]
        conversation = (await conversations_of(ask.service).create({}))["id"]
        request = await ask(tools=tools, conversation=conversation, input="word " * 1100)
        consent: dict[str, Any] = {
            "tools": tools,
            "conversation": conversation,
            "input": [
                {
                    "type": "mcp_approval_response",
                    "approve": True,
                    "approval_request_id": request["output"][-1]["id"],
                }
            ],
        }
        shorter = [{"type": "compaction", "compact_threshold": 1000}]
        failed = await (await ask.service.start(LOCAL, {**consent, "context_management": shorter})).wait()
        assert failed["status"] == "failed"
        answered = await ask(**consent)
        assert [item["type"] for item in answered["output"]][-2:] == ["mcp_call", "message"]
