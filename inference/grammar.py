"""What an engine is told of a grammar: which tokens may come next.

A `Grammar` is made by the caller and handed to `generate` in `Sampling.grammar`; an engine that enforces one
(`EngineInfo.enforces_grammar`) starts it once for each generation, and asks it before every token. What a
grammar is made of, an engine never sees.
"""

from __future__ import annotations

from typing import Protocol


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


class Grammar(Protocol):
    """Shared by any number of generations, from any thread."""

    def start(self) -> GrammarState: ...
