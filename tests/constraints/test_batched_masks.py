"""Masks of many grammar states, computed in one call."""

from __future__ import annotations

import contextlib

from gpt_oss_server.constraints.grammar import Callee, TurnShape, turn_grammar
from gpt_oss_server.constraints.matcher import MatcherState, grammars_of
from gpt_oss_server.harmony.encoding import CHANNEL, END, MESSAGE, VOCABULARY_SIZE, load_encoding
from inference.engine import EngineFailed
from inference.grammar import BatchedState, GrammarState, compute_masks


def states() -> list[MatcherState]:
    """Of two grammars, each at another place."""
    encoding = load_encoding()
    free, calls = (
        grammars_of(encoding).compile(turn_grammar(shape))
        for shape in (TurnShape(), TurnShape(callees=[Callee("functions.f")], may_answer=False))
    )
    found = [free.start(), free.start(), calls.start()]
    for token in [CHANNEL, *encoding.encode("analysis"), MESSAGE, *encoding.encode("Hm")]:
        found[1].accept(token)
    return found


def test_they_are_the_masks_of_the_single_states() -> None:
    size = -(-VOCABULARY_SIZE // 8)
    every = states()
    assert isinstance(every[0], BatchedState)
    found = compute_masks(every)
    assert [isinstance(mask, bytes) and mask[:size] for mask in found] == [
        each.mask()[:size] for each in every
    ]
    assert len(set(map(bytes, found))) == 3


def test_a_state_that_failed_fails_alone() -> None:
    every = states()
    with contextlib.suppress(EngineFailed):
        every[0].accept(END)
    failed, *others = compute_masks(every)
    assert isinstance(failed, EngineFailed)
    assert "cannot be followed" in str(failed)
    assert all(isinstance(mask, bytes) for mask in others)


def test_states_of_different_kinds_are_computed_one_by_one() -> None:
    class Broken:
        def mask(self) -> bytes:
            raise ValueError("no mask")

        def accept(self, token: int) -> None: ...

    kinds: list[GrammarState] = [states()[0], Broken()]
    whole, broken = compute_masks(kinds)
    assert isinstance(whole, bytes)
    assert isinstance(broken, ValueError)
    assert compute_masks([]) == []
