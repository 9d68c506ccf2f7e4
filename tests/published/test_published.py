"""The published schemas reject wrong events, and accept the answers that are not streams."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.doubles.published.check import check_event, check_object, check_response
from tests.doubles.serving import scripted, serving

HELLO = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
DELTA: dict[str, Any] = {
    "type": "response.output_text.delta",
    "sequence_number": 4,
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "Hi",
    "logprobs": [],
}


def test_a_correct_event_is_accepted() -> None:
    check_event(DELTA)


@pytest.mark.parametrize(
    "change", [{"delta": None}, {"sequence_number": "4"}, {"type": "response.output_text.made"}]
)
def test_a_wrong_event_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="published"):
        check_event({**DELTA, **change})


def test_answers_that_are_not_streams_are_accepted() -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 1}
    with serving(scripted(HELLO)) as url, httpx.Client(base_url=url, timeout=60) as client:
        response = client.post("/responses", json={"input": "Hi"}).json()
        check_response(response)
        check_response(client.get(f"/responses/{response['id']}").json())
        items = client.get(f"/responses/{response['id']}/input_items").json()
        check_object("ResponseItemList", items)
        check_object("CreateChatCompletionResponse", client.post("/chat/completions", json=chat).json())
        check_object("CreateCompletionResponse", client.post("/completions", json={"prompt": "Hi"}).json())
        check_object("ListModelsResponse", client.get("/models").json())
        check_object("ErrorResponse", client.post("/responses", json={"input": 7}).json())
        chunks = client.post("/chat/completions", json={**chat, "stream": True}).text.splitlines()
        for line in chunks:
            if line.startswith("data: {"):
                check_object("CreateChatCompletionStreamResponse", json.loads(line[6:]))
