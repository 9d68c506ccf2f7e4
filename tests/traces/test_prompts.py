"""A prompt is rebuilt from its response's history to the token, and is kept whole where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies

from gpt_oss_server.harmony.history import Segment, kept, split_leading_instructions
from gpt_oss_server.settings import Settings
from gpt_oss_server.traces.prompts import traced
from tests.doubles.serving import scripted, serving
from tests.traces.test_traces import CALL, HELLO, TOOL, created, spelt, trace_of

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
    """As that of a compaction."""
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
