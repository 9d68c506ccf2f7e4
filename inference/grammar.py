"""What an engine sees of a grammar: which tokens may come next.

The caller makes a `Grammar` and passes it to `generate` in `Sampling.grammar`. An engine that enforces
grammars (`EngineInfo.enforces_grammar`) starts it once per generation and requests a mask before every token.
An engine must not know what a grammar is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class GrammarState(Protocol):
    """The position of one generation in its grammar. Used by one thread at a time."""

    def mask(self) -> bytes:
        """One bit per token id, the lowest bit of the first byte for id 0: 1 if the token may come next.

        Ids beyond its end may not. Raises `InferenceError` if the grammar cannot continue.
        """
        ...

    def accept(self, token: int) -> None:
        """Records a sampled token. Raises `InferenceError` if it was not allowed."""
        ...


@runtime_checkable
class BatchedState(GrammarState, Protocol):
    """A state whose class computes the masks of many states in one call, for engines with large batches."""

    @classmethod
    def masks(cls, states: Sequence[GrammarState]) -> list[bytes | Exception]:
        """The mask of each state, or the error that its `mask` would raise."""
        ...


class Grammar(Protocol):
    """Any number of generations may share one, from any thread."""

    def start(self) -> GrammarState: ...


def masks_of(states: Sequence[GrammarState]) -> list[bytes | Exception]:
    """The mask of each state, or the error that it raised; computed together where the states allow it."""
    first = states[0] if states else None
    if (
        len(states) > 1
        and isinstance(first, BatchedState)
        and all(type(each) is type(first) for each in states)
    ):
        return first.masks(states)
    return [_mask_of(state) for state in states]


def _mask_of(state: GrammarState) -> bytes | Exception:
    try:
        return state.mask()
    except Exception as error:
        # A grammar is foreign code: what it raises fails its own generation, not the batch.
        return error
