"""The published schemas reject wrong events, and accept the answers that are not streams."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest

from tests.doubles.apis.odd_bodies import ODD, places, with_odd
from tests.doubles.published.check import check_event, check_object, check_response, fits, problems_of
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


def test_the_fast_check_accepts_exactly_what_the_other_finds_no_problem_in() -> None:
    """One odd value at each place of a response and of an item, and each key left out."""
    with serving(scripted(HELLO)) as url:
        response = httpx.post(f"{url}/responses", json={"input": "Hi"}, timeout=60).json()
    verdicts = set()
    odd = itertools.cycle(ODD)
    for name, value in (("Response", response), ("OutputItem", response["output"][-1])):
        for place in places(value):
            changed = with_odd(value, place, next(odd)) if place else value
            verdicts.add(fits(name, changed))
            assert fits(name, changed) == (not problems_of(name, changed)), (name, place)
        for key in value:
            shorter = {other: value[other] for other in value if other != key}
            assert fits(name, shorter) == (not problems_of(name, shorter)), (name, key)
    assert verdicts == {True, False}
