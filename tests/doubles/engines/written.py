"""A grammar whose text shows what was taken of it."""

from __future__ import annotations

from collections.abc import Iterable

from inference.grammar import GrammarState, Notation


class Written:
    """`end` is a token at which the grammar may end; 77 is another."""

    def __init__(self, end: int) -> None:
        self.taken: list[int] = []
        self.is_inside_character = False
        self._end = end
        self.ends = frozenset({end, 77})

    def start(self) -> GrammarState:
        raise NotImplementedError

    def spelling(self) -> Written:
        return Written(self._end)

    def take(self, tokens: Iterable[int]) -> None:
        self.taken += tokens

    def rest(self, notation: Notation) -> str | None:
        return f"{notation} after {self.taken}"
