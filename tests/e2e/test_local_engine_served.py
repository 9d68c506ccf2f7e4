"""The local engine as clients see it: cached tokens, a full queue, counters, and a draft head."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.cli.server.greeting import greeting
from gpt_oss_server.harmony.encoding import MESSAGE
from gpt_oss_server.settings import Settings
from inference.options import EngineOptions
from tests.doubles.apis.api_client import APIS
from tests.doubles.inference.heads import write_repeating_model, write_right_head
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint
from tests.doubles.serving import serving

LONG = "The same long beginning, word for word, in each of these. " * 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("smallest"), SMALLEST, seed=5)


@pytest.fixture
def url(checkpoint: Path) -> Iterator[str]:
    options = EngineOptions(max_concurrent=1, max_waiting=3)
    engine = inference.load(str(checkpoint), device="cpu", options=options)
    with serving(engine, Settings()) as url:
        yield url


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    return httpx.post(url + path, json=body, timeout=60).raise_for_status().json()


def counters(url: str) -> Any:
    return httpx.get(f"{url.removesuffix('/v1')}/health").json()["counters"]["engine"]


def test_both_apis_report_cached_tokens(url: str) -> None:
    request = {"input": LONG, "max_output_tokens": 20}
    first, again = (post(url, "/responses", request)["usage"] for _ in range(2))
    assert first["input_tokens_details"]["cached_tokens"] == 0
    cached = again["input_tokens_details"]["cached_tokens"]
    assert cached % 16 == 0
    assert again["input_tokens"] - 16 <= cached < again["input_tokens"]
    chat = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 20, "n": 2}
    usage = post(url, "/chat/completions", chat)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == cached  # the same prompt


def test_what_the_grammar_allowed_and_the_batch_of_each_step_can_be_read() -> None:
    form = {"format": {"type": "json_schema", "name": "f", "schema": {"enum": ["red", "green"]}}}
    with serving(inference.load("tiny")) as url:
        id_ = post(url, "/responses", {"input": "Hi", "text": form, "top_logprobs": 5})["id"]
        (found,) = httpx.get(f"{url}/responses/{id_}/trace").json()["responses"]
        (generation,) = found["generations"]
        tokens = generation["tokens"]
        place = len(tokens) - tokens[::-1].index(MESSAGE) + 1  # after the first quotation mark
        allowed = httpx.get(f"{url}/responses/{id_}/trace?allowed={place}").json()["allowed"]
        steps = httpx.get(f"{url.removesuffix('/v1')}/health?steps=true").json()["steps"]
    assert {text for _, text in allowed["tokens"]} >= {"red", "green"}
    likeliest = {token for token, _ in generation["alternatives"][str(place)]}
    assert likeliest - set(allowed["forbidden"]) <= {token for token, _ in allowed["tokens"]}
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert sum(step["prompt_tokens"] for step in steps) == len(found["prompt"])
    assert sum(step["decoded_tokens"] for step in steps) == len(tokens) - 1
    assert 0 <= generation["queued"] <= generation["first_token"]


def test_concurrent_choices_share_their_prompt_without_reporting_it_as_cached(url: str) -> None:
    chat = {"messages": [{"role": "user", "content": "Another text. " + LONG}], "max_tokens": 4, "n": 2}
    first, again = (post(url, "/chat/completions", chat)["usage"]["prompt_tokens_details"] for _ in range(2))
    assert first["cached_tokens"] < 100  # the system message may be cached already
    assert again["cached_tokens"] > 100
    plain = {"prompt": [list(range(100)), list(range(50, 200))], "max_tokens": 2, "n": 2}
    first, again = (post(url, "/completions", plain)["usage"]["prompt_tokens_details"] for _ in range(2))
    assert (first["cached_tokens"], again["cached_tokens"]) == (0, 96 + 144)


def test_a_further_turn_computes_only_new_tokens(url: str) -> None:
    first = post(url, "/responses", {"input": LONG, "max_output_tokens": 30})
    body = {"input": "Go on.", "previous_response_id": first["id"], "max_output_tokens": 5}
    second = post(url, "/responses", body)
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached > first["usage"]["input_tokens"] - 16


def test_a_full_server_is_a_503_before_a_stream_starts(url: str) -> None:
    endless = {"input": "x", "max_output_tokens": 1500, "stream": True}
    with ExitStack() as streams:
        for _ in range(4):
            streams.enter_context(httpx.stream("POST", f"{url}/responses", json=endless, timeout=60))
        for path, body in APIS.items():
            refused = httpx.post(url + path, json={**body, "stream": True}, timeout=60)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            error = refused.json()["error"]
            assert error["code"] == "server_is_overloaded"
            assert "are already waiting" in error["message"]


def test_health_reports_the_engines_counters(url: str) -> None:
    post(url, "/responses", {"input": LONG, "max_output_tokens": 4})
    counted = counters(url)
    assert counted["running"] == counted["waiting"] == counted["kv_blocks_used"] == 0
    assert counted["prompt_tokens"] > 100
    assert {"steps", "cached_tokens", "preemptions", "drafted_tokens", "accepted_tokens"} <= counted.keys()


def test_a_prediction_brings_the_same_answer_in_fewer_steps() -> None:
    """Of the embedded model, over both APIs."""
    question = "What does the python tool do?"
    chat = {"messages": [{"role": "user", "content": question}], "temperature": 0, "reasoning_effort": "none"}
    with serving(inference.load("tiny", device="cpu"), Settings()) as url:
        plain = post(url, "/chat/completions", chat)
        alone = counters(url)["steps"]
        text = plain["choices"][0]["message"]["content"]
        parts = [{"type": "text", "text": text[:9]}, {"type": "text", "text": f" and more{text[9:]}"}]
        prediction = {"type": "content", "content": parts}
        same = post(url, "/chat/completions", {**chat, "prediction": prediction})
        steps = counters(url)["steps"] - alone
        prompt = {"input": question, "temperature": 0, "reasoning": {"effort": "none"}}
        response = post(url, "/responses", {**prompt, "prediction": {"type": "content", "content": text}})
    assert same["choices"] == plain["choices"]
    assert steps < alone
    details = same["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] >= alone - steps
    assert details["rejected_prediction_tokens"] > 0
    assert response["usage"]["output_tokens_details"]["accepted_prediction_tokens"] > 0
    assert "accepted_prediction_tokens" not in plain["usage"]["completion_tokens_details"]


async def test_the_greeting_states_the_plan_of_the_memory(checkpoint: Path) -> None:
    engine = inference.load(str(checkpoint), device="cpu")
    try:
        text = greeting(Settings(), engine.info, "http://x")
        assert "Memory   up to" in text
        assert "32 requests may run" in text
    finally:
        await engine.close()


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


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response_with_a_draft_head_is_the_same(urls: tuple[str, str], kind: str) -> None:
    body = {"input": "Find it.", "temperature": 0, "max_output_tokens": 300, **RESPONSES[kind]}
    ended = "completed" if kind in ("a call", "a schema") else "incomplete"
    shown = []
    for url in urls:
        answer = post(url, "/responses", body)
        shown.append(([{**item, "id": "", "call_id": ""} for item in answer["output"]], answer["usage"]))
        assert answer["output"]
        assert answer["status"] == ended
    assert shown[0] == shown[1]
    assert counters(urls[0])["drafted_tokens"] == 0
    assert counters(urls[1])["accepted_tokens"] > 0 or kind != "free"
