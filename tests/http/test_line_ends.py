"""Clients that split a stream's lines the Unicode way read whole events."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gpt_oss_server.http.sse import to_line
from tests.doubles.serving import scripted, serving

TEXT = "one\u2028two\u2029three\u0085four \N{EARTH GLOBE EUROPE-AFRICA} Å"
ANSWER = f"<|channel|>final<|message|>{TEXT}<|return|>"


@pytest.mark.parametrize("text", [TEXT, "\u2027\u202a\u0084\u0086", "\x0b\x0c\x1c\x1d\x1e\r\n", "é \u2028"])
def test_a_value_is_one_line_and_the_same_value(text: str) -> None:
    line = to_line({"text": text, text: 1}).decode()
    assert line.splitlines() == [line]
    assert json.loads(line) == {"text": text, text: 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": "Hi"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/completions", {"prompt": "Hi", "max_tokens": 40}),
    ],
)
def test_an_event_is_one_line_for_every_client(path: str, body: dict[str, Any]) -> None:
    with (
        serving(scripted(ANSWER)) as url,
        httpx.stream("POST", f"{url}{path}", json={**body, "stream": True}) as response,
    ):
        lines = list(response.iter_lines())  # splits at every line end of Unicode
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    events = [json.loads(line) for line in data if line != "[DONE]"]
    assert TEXT in _shown(events)
    assert all(line.startswith(("data: ", "event: ", ": ")) for line in lines if line)


def _shown(events: list[dict[str, Any]]) -> str:
    choices = [choice for event in events for choice in event.get("choices", ())]
    texts = [event["delta"] for event in events if event.get("type") == "response.output_text.delta"]
    texts += [choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices]
    return "".join(texts)
