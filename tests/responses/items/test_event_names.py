"""The events of reasoning have one of two names, never both."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

HELLO = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)


@pytest.mark.parametrize(
    ("names", "prefix"),
    [("openai", "response.reasoning_text."), ("open-responses", "response.reasoning.")],
)
def test_reasoning_events_have_the_chosen_name(names: str, prefix: str) -> None:
    body = {"input": "Hi", "stream": True}
    with serving(scripted(HELLO), Settings(event_names=names)) as url:
        lines = httpx.post(f"{url}/responses", json=body, timeout=60).text.splitlines()
    events: list[dict[str, Any]] = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [event["type"] for event in events]
    reasoning_events = [event for event in events if event["type"].startswith("response.reasoning")]
    assert {event["type"] for event in reasoning_events} == {f"{prefix}delta", f"{prefix}done"}
    assert (
        "".join(event.get("delta", "") for event in reasoning_events) == "Hm." == reasoning_events[-1]["text"]
    )
    [reasoning, _] = events[-1]["response"]["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm."}]
