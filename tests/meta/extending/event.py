"""The event of a flipped coin is in the stream, numbered as any other."""

from __future__ import annotations

import json

import httpx

from tests.doubles.serving import scripted, serving

CALL = "<|channel|>commentary to=coin.flip <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>Done.<|return|>"


def test_the_event_is_in_the_stream_before_the_answer() -> None:
    body = {"input": "Flip.", "tools": [{"type": "coin"}], "stream": True}
    with serving(scripted(CALL, ANSWER)) as base:
        stream = httpx.post(f"{base}/responses", json=body, timeout=60).text
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    kinds = [each["type"] for each in events]
    place = kinds.index("response.coin_call.flipping")
    assert place < kinds.index("response.coin_call.completed")
    assert events[place]["item_id"] == events[-1]["response"]["output"][0]["id"]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
