"""What an engine is told of a grammar: which tokens may come next.

A `Grammar` is made by the caller and handed to `generate` in `Sampling.grammar`; an engine that enforces one
(`EngineInfo.enforces_grammar`) starts it once for each generation, and asks it before every token. What a
grammar is made of, an engine never sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class GrammarState(Protocol):
    """Where one generation stands in its grammar. Used by one thread at a time."""

    def mask(self) -> bytes:
        """One bit for each token id, the lowest bit of the first byte for id 0: 1 where it may come next.

        Ids past its end may not. Raises `InferenceError` when the grammar can go no further.
        """
        ...

    def accept(self, token: int) -> None:
        """The token was sampled. Raises `InferenceError` when it was not allowed."""
        ...


@runtime_checkable
class BatchedState(GrammarState, Protocol):
    """A state whose class computes the masks of many states in one call, for engines with large batches."""

    @classmethod
    def masks(cls, states: Sequence[GrammarState]) -> list[bytes | Exception]:
        """The mask of each state, or the error that its `mask` would raise."""
        ...


class Grammar(Protocol):
    """Shared by any number of generations, from any thread."""

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
