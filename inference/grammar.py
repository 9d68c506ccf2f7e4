"""What an engine sees of a grammar: which tokens may come next.

The caller makes a `Grammar` and passes it to `generate` in `Sampling.grammar`. An engine that enforces
grammars (`EngineInfo.enforces_grammar`) starts it once per generation and requests a mask before every token.
An engine must not know what a grammar is made of.
"""

from __future__ import annotations

from typing import Protocol


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


class Grammar(Protocol):
    """Any number of generations may share one, from any thread."""

    def start(self) -> GrammarState: ...
