"""A server with a draft head answers like one without: schemas, calls, streams and scores."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from inference.options import EngineOptions
from tests.doubles.inference.heads import write_repeating_model, write_right_head
from tests.doubles.inference.random_checkpoint import SMALLEST
from tests.doubles.serving import serving

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "number": {"enum": [1, 20, 300]}},
    "required": ["name", "number"],
    "additionalProperties": False,
}
FUNCTION = {"name": "look_up", "description": "Looks it up.", "strict": True, "parameters": SCHEMA}
RESPONSES: dict[str, dict[str, Any]] = {
    "a call": {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"},
    "a schema": {
        "reasoning": {"effort": "none"},
        "text": {"format": {"type": "json_schema", "name": "found", "schema": SCHEMA, "strict": True}},
    },
    "free": {"max_output_tokens": 60},
    "sampled": {"max_output_tokens": 60, "temperature": 0.8, "seed": 5},
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Without a head, and with one that is often right."""
    config = replace(SMALLEST, layers=2, hidden=64, heads=4, kv_heads=2, sliding_layers=(True, False))
    checkpoint = write_repeating_model(tmp_path_factory.mktemp("model"), config, share=0.05)
    head = str(write_right_head(tmp_path_factory.mktemp("head"), checkpoint))
    plain = inference.load(str(checkpoint), device="cpu")
    headed = inference.load(str(checkpoint), device="cpu", options=EngineOptions(speculation=f"eagle:{head}"))
    with serving(plain, Settings()) as one, serving(headed, Settings()) as other:
        yield one, other


def drafted(url: str) -> Any:
    return httpx.get(f"{url.removesuffix('/v1')}/health").json()["counters"]["engine"]


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response_is_the_same(urls: tuple[str, str], kind: str) -> None:
    body = {"input": "Find it.", "temperature": 0, "max_output_tokens": 300, **RESPONSES[kind]}
    ended = "completed" if kind in ("a call", "a schema") else "incomplete"
    shown = []
    for url in urls:
        answer = httpx.post(f"{url}/responses", json=body, timeout=120).json()
        shown.append(([{**item, "id": "", "call_id": ""} for item in answer["output"]], answer["usage"]))
        assert answer["output"]
        assert answer["status"] == ended
    assert shown[0] == shown[1]


def test_a_streamed_chat_with_scores_is_the_same(urls: tuple[str, str]) -> None:
    options = {"temperature": 0, "max_tokens": 40, "logprobs": True, "top_logprobs": 2, "n": 2}
    body = {"messages": [{"role": "user", "content": "Again and again."}], "stream": True, **options}
    answers = []
    for url in urls:
        lines = httpx.post(f"{url}/chat/completions", json=body, timeout=120).text.splitlines()
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        texts = ["", ""]
        scores: list[list[tuple[str, float]]] = [[], []]
        for choice in (choice for chunk in chunks for choice in chunk["choices"]):
            texts[choice["index"]] += choice["delta"].get("content") or ""
            for each in (choice.get("logprobs") or {}).get("content") or ():
                scores[choice["index"]].append((each["token"], each["logprob"]))
        answers.append((texts, scores))
    assert answers[0][0] == answers[1][0]
    for plain, headed in zip(answers[0][1], answers[1][1], strict=True):
        assert [token for token, _ in plain] == [token for token, _ in headed]
        assert [score for _, score in plain] == pytest.approx([score for _, score in headed], abs=1e-3)
    assert drafted(urls[0])["drafted_tokens"] == 0
    assert drafted(urls[1])["accepted_tokens"] > 0
