"""A coin keeps the contract of a tool, runs in the middle of a response, and has events of its own."""

import json

import httpx

from gpt_oss_server.items.coin import CoinTool
from tests.contracts.tool_contract import ToolContract
from tests.doubles.serving import scripted, serving
from tools.tool import Tool

CALL = "<|channel|>commentary to=coin.flip <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
TOOLS = [{"type": "coin"}]


class TestCoin(ToolContract):
    async def make(self) -> Tool:
        return CoinTool()


def test_the_model_flips_the_coin_and_goes_on_in_the_same_response() -> None:
    with serving(scripted(CALL, ANSWER, ANSWER)) as base:
        response = httpx.post(f"{base}/responses", json={"input": "Flip.", "tools": TOOLS}, timeout=60).json()
        call, message = response["output"]
        again = httpx.post(f"{base}/responses", json={"input": [call], "tools": TOOLS}, timeout=60)
    assert (call["type"], call["status"]) == ("coin_call", "completed")
    assert call["id"].startswith("coin_")
    assert call["side"] in ("heads", "tails")
    assert message["content"][0]["text"] == "Done."
    assert again.status_code == 200


def test_its_events_are_in_the_stream_numbered_as_any_other() -> None:
    body = {"input": "Flip.", "tools": TOOLS, "tool_choice": {"type": "coin"}, "stream": True}
    with serving(scripted(CALL, ANSWER)) as base:
        stream = httpx.post(f"{base}/responses", json=body, timeout=60).text
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    kinds = [event["type"].removeprefix("response.coin_call.") for event in events]
    places = [kinds.index(step) for step in ("in_progress", "flipping", "completed")]
    assert places == sorted(places)
    assert events[places[1]]["item_id"] == events[-1]["response"]["output"][0]["id"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_an_mcp_server_cannot_take_its_name() -> None:
    server = {"type": "mcp", "server_label": "coin", "server_url": "http://127.0.0.1:9/mcp"}
    body = {"input": "Flip.", "tools": [*TOOLS, server]}
    with serving(scripted(ANSWER)) as base:
        answer = httpx.post(f"{base}/responses", json=body, timeout=60)
    assert answer.status_code == 400
    assert "both called 'coin'" in answer.json()["error"]["message"]
