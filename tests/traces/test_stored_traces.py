"""Traces in a store that outlives the process: complete, and gone with their responses."""

import json
import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies

from gpt_oss_server.harmony.history import Segment, kept, split_leading_instructions
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.sql.codec import pack, unpack
from gpt_oss_server.stores.sql.responses import SqlTraces
from gpt_oss_server.stores.sql.sizes import trace_bytes
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.traces.packed import packed, unpacked
from gpt_oss_server.traces.prompts import traced
from gpt_oss_server.traces.records import TraceRecord
from gpt_oss_server.turns.repetition import TurnWarning, WarningKind
from gpt_oss_server.turns.transcript import ToolRun, Transcript
from gpt_oss_server.turns.watch import MeasuredSpan
from tests.doubles.serving import scripted, serving
from tests.doubles.stored import stored
from tests.traces.test_traces import CALL, HELLO, TOOL, code_of_no_trace, created, spelt, trace_of, two_turns


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
    assert database.write_now(trace_bytes) == 0


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
