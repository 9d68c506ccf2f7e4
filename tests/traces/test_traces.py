"""Traces of responses: complete, of stored responses only, and replayed to the same answer."""

import itertools
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.history import Segment, kept, split_leading_instructions
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.sql.codec import pack, unpack
from gpt_oss_server.stores.sql.responses import SqlTraces
from gpt_oss_server.stores.sql.sizes import TRACES, total
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.traces.document import Traced, reading_of
from gpt_oss_server.traces.packed import packed, unpacked
from gpt_oss_server.traces.prompts import traced
from gpt_oss_server.traces.records import TraceRecord, Traces
from gpt_oss_server.turns.repetition import TurnWarning, WarningKind
from gpt_oss_server.turns.transcript import ToolRun, Transcript
from gpt_oss_server.turns.watch import MeasuredSpan
from inference.backends.script_file import parse_script
from inference.backends.table import load
from inference.engine import CheckpointError
from tests.doubles.serving import scripted, serving
from tests.doubles.stored import stored

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


def recorded(*names: str) -> list[str]:
    """Whose records are kept of runs that end one after the other."""
    traces = Traces(enabled=True, most_bytes=100_000)
    for name in names:
        traces.begin(name, TraceRecord({}, {"id": name}, Recipients(), Transcript([1] * 1000)))
        traces.end(name)
    return [name for name in dict.fromkeys(names) if traces.get(name) is not None]


def test_the_oldest_records_go_first() -> None:
    names = [str(number) for number in range(20)]
    kept = recorded(*names)
    assert 1 <= len(kept) <= 5
    assert kept == names[-len(kept) :]


def test_a_run_that_ends_here_twice_counts_once() -> None:
    """As a background run does that went to another process and came back."""
    assert recorded(*["a"] * 20, "b") == ["a", "b"]


def test_a_trace_is_the_same_after_a_restart_until_its_response_is_deleted(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}")
    with serving(scripted(CALL, HELLO), settings) as url:
        first, second = two_turns(url)
        before = trace_of(url, second, "?conversation=true")
    with serving(scripted(HELLO), settings) as url:  # another engine: the trace names that of the response
        assert trace_of(url, second, "?conversation=true") == before
        assert len(before["responses"]) == 2
        httpx.delete(f"{url}/responses/{second['id']}")
        assert code_of_no_trace(url, second)
        assert trace_of(url, first)["responses"] == before["responses"][:1]


def test_a_response_that_another_server_deletes_has_no_trace_here(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}")
    with serving(scripted(HELLO), settings) as here, serving(scripted(HELLO), settings) as there:
        response = created(here)
        assert trace_of(there, response) == trace_of(here, response)
        httpx.delete(f"{there}/responses/{response['id']}")
        for url in (here, there):
            assert code_of_no_trace(url, response)


def test_a_store_keeps_no_traces_where_clients_may_read_none(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", debug_api="off")
    with serving(scripted(HELLO), settings) as url:
        created(url)
    database = SqliteDatabase(tmp_path / "store.sqlite")
    assert database.write_now(lambda tx: total(tx, TRACES)) == 0


def test_a_packed_record_loses_nothing() -> None:
    transcript = Transcript(range(100), tokens=[7, 8, 200_008], scores={0: -1.5, 1: -math.inf})
    transcript.alternatives[0] = ((7, -1.5), (9, -2.0))
    transcript.generations.append(MeasuredSpan(0, 1.0, 1.5, 2.0, 3, 64))
    transcript.tool_runs.append(ToolRun(1, "python", 'print("\ud800")', "é\n", 3.0, 4.0))
    transcript.warnings.append(TurnWarning(WarningKind.REPETITION, "It repeats."))
    recipients = Recipients(frozenset({"f"}), frozenset({"python"}))
    record = TraceRecord({"input": "\ud800"}, {"id": "resp_1"}, recipients, transcript)
    record.end()
    again = unpacked(packed(record, {"engine": {"name": "e"}}), record.response)
    assert again.origin == {"engine": {"name": "e"}}
    assert (again.request, again.recipients, again.began) == (record.request, recipients, record.began)
    for name in ("generations", "tool_runs", "scores", "alternatives", "warnings"):
        assert getattr(again.tokens, name) == getattr(record.tokens, name)
    assert again.tokens.prompt.tokens(()) == record.tokens.prompt.tokens(()) == list(range(100))
    assert list(again.tokens.tokens) == list(record.tokens.tokens)


def test_a_run_that_ends_while_its_trace_is_made_keeps_its_prompt() -> None:
    transcript = Transcript(range(100), tokens=[7, 8])
    record = TraceRecord({"input": "Hi"}, {"id": "resp_1"}, Recipients(), transcript)
    found = Traced(record, transcript=transcript)
    record.finish([Segment("user", tuple(range(99)))], 1)
    record.end()
    assert record.tokens.prompt.needs_history
    assert found.tokens.prompt.tokens(()) == list(range(100))


def test_a_trace_of_the_first_form_is_read() -> None:
    transcript = Transcript(range(100), tokens=[7, 8])
    record = TraceRecord({"input": "Hi"}, {"id": "resp_1"}, Recipients(), transcript)
    record.end()
    encoded, tokens, prompt, _ = unpack(zlib.decompress(packed(record, {})))
    head = json.loads(encoded)
    del head["history"]
    first = zlib.compress(pack((json.dumps(head).encode(), prompt, tokens)))
    again = unpacked(first, record.response)
    assert again.tokens.prompt.tokens(()) == list(range(100))
    assert list(again.tokens.tokens) == [7, 8]


@pytest.mark.parametrize(("most", "least_left", "most_left"), [(100_000, 100, 100), (1_000, 1, 20)])
async def test_the_oldest_traces_go_first(tmp_path: Path, most: int, least_left: int, most_left: int) -> None:
    database = SqliteDatabase(tmp_path / "store.sqlite")
    store, traces = SqlStore(database), SqlTraces(database)
    for number in range(100):
        await store.put(replace(stored(f"resp_{number}"), trace=b"x" * 50))
    await Sweeper(database, Bounds(trace_bytes=most)).sweep()
    kept = [number for number in range(100) if await traces.get(f"resp_{number}") is not None]
    assert kept == list(range(100 - len(kept), 100))
    assert least_left <= len(kept) <= most_left
    assert await store.get("resp_0") is not None, "the response stays"
    await store.close()


_TOKENS = strategies.lists(strategies.integers(0, 9), min_size=1, max_size=4).map(tuple)
_SEGMENTS = strategies.one_of(
    _TOKENS.map(lambda tokens: Segment("user", tokens)),
    _TOKENS.map(lambda tokens: Segment("developer", tokens, text="Be kind.")),
    _TOKENS.map(lambda tokens: Segment("assistant", tokens, "analysis")),
    _TOKENS.map(lambda tokens: Segment("assistant", tokens, "final")),
    _TOKENS.map(lambda tokens: Segment("assistant", tokens, "commentary", "functions.f")),
)
_CUE = (1, 2)


@settings(max_examples=200, deadline=None)
@given(strategies.lists(_SEGMENTS, max_size=8), _TOKENS, strategies.booleans(), strategies.lists(_SEGMENTS))
def test_any_prompt_is_rebuilt(
    history: list[Segment], head: tuple[int, ...], all_reasoning: bool, generated: list[Segment]
) -> None:
    _, rest = split_leading_instructions(history)
    shown = kept(rest, all_reasoning=all_reasoning)
    prompt = [*head, *(token for segment in shown for token in segment.tokens), *_CUE]
    found = traced(prompt, history, len(_CUE))
    assert found.needs_history == bool(shown)
    assert found.tokens([*history, *generated]) == prompt


@settings(max_examples=100, deadline=None)
@given(strategies.lists(_SEGMENTS, max_size=8), strategies.lists(strategies.integers(0, 9), max_size=30))
def test_a_prompt_of_another_kind_is_kept(history: list[Segment], prompt: list[int]) -> None:
    assert traced(prompt, history, len(_CUE)).tokens(history) == prompt


_TURNS: list[dict[str, Any]] = [
    {"input": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
    {"input": "And now?", "instructions": "Be short."},
    {"input": "Think again.", "reasoning": {"context": "all_turns"}},
    {"input": "f!", "tools": [TOOL]},
]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("of", ["responses", "a conversation"])
def test_a_trace_has_its_prompt_after_its_parents_are_deleted(tmp_path: Path, kind: str, of: str) -> None:
    place = kind if kind == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    with serving(scripted(HELLO, HELLO, HELLO, CALL), Settings(store=place)) as url:
        named: dict[str, Any] = {}
        if of == "a conversation":
            named = {"conversation": httpx.post(f"{url}/conversations", json={}).json()["id"]}
        responses, before = [], []
        for turn in _TURNS:
            body = {**turn, **named}
            rendered = httpx.post(f"{url.removesuffix('/v1')}/render", json=body).json()
            responses.append(created(url, **body))
            before.append(trace_of(url, responses[-1]))
            assert before[-1]["responses"][0]["prompt"] == rendered["tokens"]
            if of == "responses":
                named = {"previous_response_id": responses[-1]["id"]}
        for response in responses[:-1]:
            assert httpx.delete(f"{url}/responses/{response['id']}").status_code == 200
        if of == "a conversation":
            httpx.delete(f"{url}/conversations/{named['conversation']}")
        assert trace_of(url, responses[-1]) == before[-1]
    if kind == "sqlite":
        with serving(scripted(HELLO), Settings(store=place)) as url:
            assert trace_of(url, responses[-1]) == before[-1]


def test_a_compaction_and_the_turn_after_it_have_their_prompts(tmp_path: Path) -> None:
    place = f"sqlite:{tmp_path / 'store.sqlite'}"
    with serving(scripted(HELLO, HELLO, HELLO, HELLO), Settings(store=place)) as url:
        first = created(url)
        compacted = created(url, input=[{"type": "compaction_trigger"}], previous_response_id=first["id"])
        last = created(url, input="Go on.", previous_response_id=compacted["id"])
        before = [trace_of(url, response) for response in (compacted, last)]
    assert "your own summary of it" in spelt(before[0], before[0]["responses"][0]["prompt"])
    assert "Go on." in spelt(before[1], before[1]["responses"][0]["prompt"])
    with serving(scripted(HELLO), Settings(store=place)) as url:
        assert [trace_of(url, response) for response in (compacted, last)] == before
