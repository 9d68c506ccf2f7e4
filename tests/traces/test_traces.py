"""Traces of responses: complete, of stored responses only, and replayed to the same answer."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.settings import Settings
from gpt_oss_server.traces.document import reading_of
from gpt_oss_server.traces.records import TraceRecord, Traces
from gpt_oss_server.turns.transcript import Transcript
from inference.backends.script_file import parse_script
from inference.backends.table import load
from inference.engine import CheckpointError
from tests.doubles.serving import scripted, serving

ENCODING = load_encoding()
THINKS = "<|channel|>analysis<|message|>Be kind.<|end|><|start|>assistant<|channel|>final<|message|>"
HELLO = THINKS + "Hello é 🙂.<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO)) as url:
        yield url


def created(url: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/responses", json={"input": "Hi", **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def trace_of(url: str, response: dict[str, Any], query: str = "") -> dict[str, Any]:
    answer = httpx.get(f"{url}/responses/{response['id']}/trace{query}", timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def code_of_no_trace(url: str, response: dict[str, Any]) -> str:
    answer = httpx.get(f"{url}/responses/{response['id']}/trace")
    assert answer.status_code == 404
    return str(answer.json()["error"]["code"])


def two_turns(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call, and the answer to its result."""
    first = created(url, tools=[TOOL], top_logprobs=2)
    output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "2"}
    return first, created(url, previous_response_id=first["id"], input=[output], tools=[TOOL])


def spelt(trace: dict[str, Any], tokens: list[int]) -> str:
    texts = [trace["vocabulary"][str(token)] for token in tokens]
    return b"".join(bytes(t) if isinstance(t, list) else t.encode() for t in texts).decode()


def test_a_trace_holds_the_request_the_response_and_every_token(url: str) -> None:
    response = created(url, top_logprobs=2)
    trace = trace_of(url, response)
    assert (trace["format"], trace["version"]) == ("gpt-oss-server/trace", 1)
    (found,) = trace["responses"]
    assert (found["request"], found["response"]) == ({"input": "Hi", "top_logprobs": 2}, response)
    rendered = httpx.post(f"{url.removesuffix('/v1')}/render", json={"input": "Hi"}).json()
    assert (found["prompt"], spelt(trace, found["prompt"])) == (rendered["tokens"], rendered["text"])
    (generation,) = found["generations"]
    tokens = generation["tokens"]
    assert spelt(trace, tokens) == HELLO
    assert generation["logprobs"] == [0.0] * len(tokens)
    assert generation["alternatives"]["0"] == [[tokens[0], 0.0]]
    assert 0 <= generation["began"] <= generation["first_token"] <= generation["ended"]
    assert generation["library"]["agrees"]
    reasoning, answer = generation["messages"]
    assert (reasoning["channel"], reasoning["dropped_next_turn"]) == ("analysis", True)
    assert (answer["channel"], answer["text"], answer["dropped_next_turn"]) == ("final", "Hello é 🙂.", False)
    assert answer["end"] == len(tokens)


def test_slips_have_a_place_and_the_library_s_reading_stands_beside_them() -> None:
    text = "<|channel|>opinion<|message|>One.<|end|>Two.<|return|>"
    with serving(scripted(text)) as url:
        (found,) = trace_of(url, created(url))["responses"]
    (generation,) = found["generations"]
    first = generation["slips"][0]
    assert (first["kind"], generation["tokens"][first["at"]]) == ("unknown_channel", 200008)
    assert {"unknown_channel", "no_header"} <= {slip["kind"] for slip in generation["slips"]}
    library = generation["library"]
    assert not library["agrees"]
    assert library["stopped_at"] is not None
    assert library["error"]


def test_a_conversation_is_traced_as_far_as_it_is_kept_and_replays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with serving(scripted(CALL, HELLO)) as url:
        turns = two_turns(url)
        assert len(trace_of(url, turns[1])["responses"]) == 1
        whole = trace_of(url, turns[1], "?conversation=true")
    assert [traced["response"]["id"] for traced in whole["responses"]] == [turn["id"] for turn in turns]
    assert whole["responses"][0]["recipients"]["functions"] == ["f"]
    path.write_text(json.dumps(whole))
    with serving(load(f"scripted:{path}")) as url:
        for turn in turns:
            again = created(url, tools=[TOOL])
            assert _without_ids(again["output"]) == _without_ids(turn["output"])


def test_only_stored_responses_have_a_trace_until_they_are_deleted(url: str) -> None:
    assert code_of_no_trace(url, created(url, store=False)) == "trace_not_found"
    stored = created(url)
    trace_of(url, stored)
    httpx.delete(f"{url}/responses/{stored['id']}")
    assert code_of_no_trace(url, stored)


@pytest.mark.parametrize(
    ("host", "debug", "allowed"),
    [
        ("127.0.0.1", {}, True),
        ("localhost", {}, True),
        ("::1", {}, True),
        ("0.0.0.0", {}, False),
        ("192.0.2.7", {}, False),
        ("0.0.0.0", {"debug_api": "on"}, True),
        ("127.0.0.1", {"debug_api": "off"}, False),
    ],
)
def test_debugging_is_for_this_machine_unless_configured(host: str, debug: Any, allowed: bool) -> None:
    with serving(scripted(HELLO), Settings(host=host, **debug)) as url:
        answer = httpx.get(f"{url}/responses/{created(url)['id']}/trace")
    assert answer.status_code == (200 if allowed else 404)
    if not allowed:
        assert answer.json()["error"]["code"] == "debugging_off"
        assert "--debug-api" in answer.json()["error"]["message"]


def test_a_running_response_has_a_trace() -> None:
    long = THINKS + "word " * 400 + "<|return|>"
    with serving(scripted(long, tokens_per_second=100)) as url:
        response = created(url, background=True)
        sizes = set[int]()
        while len(sizes) < 3:
            (found,) = trace_of(url, response)["responses"]
            sizes.add(sum(len(generation["tokens"]) for generation in found["generations"]))
        assert found["response"]["status"] == "in_progress"
        httpx.post(f"{url}/responses/{response['id']}/cancel")
        assert trace_of(url, response)["responses"][0]["response"]["status"] == "cancelled"


def _without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: item[key] for key in item if key not in ("id", "call_id")} for item in output]


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ({"version": 2}, "version 2"),
        ({"version": 1}, "without"),
        ({"version": 1, "responses": []}, "nothing was generated"),
        ({"version": 1, "responses": [{"generations": [{"tokens": ["a"]}]}]}, "whole numbers"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused_with_the_reason(trace: dict[str, Any], why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        parse_script({"format": "gpt-oss-server/trace", **trace}, 201_088)


_SPECIAL = strategies.sampled_from([200002, 200003, 200005, 200006, 200007, 200008, 200012, 199999, 200020])


@settings(max_examples=60, deadline=None)
@given(strategies.lists(_SPECIAL | strategies.integers(0, 199_997), max_size=30))
def test_any_tokens_can_be_read(tokens: list[int]) -> None:
    found = reading_of(tokens, ENCODING, Recipients(), stopped=True)
    json.dumps(found)
    assert all(0 <= slip["at"] < len(tokens) for slip in found["slips"])
    spans = [(message["start"], message["end"]) for message in found["messages"]]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))


def recorded(traces: Traces, *names: str) -> None:
    for name in names:
        traces.begin(name, TraceRecord({}, {"id": name}, Recipients(), Transcript([1] * 1000)))
        traces.end(name)


def test_the_oldest_records_go_first() -> None:
    traces = Traces(enabled=True, most_bytes=100_000)
    names = [str(number) for number in range(20)]
    recorded(traces, *names)
    kept = [name for name in names if traces.get(name) is not None]
    assert 1 <= len(kept) <= 5
    assert kept == names[-len(kept) :]


def test_a_run_that_ends_here_twice_counts_once() -> None:
    """As a background run does that went to another process and came back."""
    traces = Traces(enabled=True, most_bytes=100_000)
    recorded(traces, *["a"] * 20, "b")
    assert traces.get("a") is not None
    assert traces.get("b") is not None
