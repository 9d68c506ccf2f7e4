"""A grammar whose text shows what was taken of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from inference.grammar import GrammarState, Notation


class Written:
    """`end` is a token at which the grammar may end; 77 is another. `unfit` are tokens outside it."""

    def __init__(self, end: int, *, is_usual: bool = False, unfit: Collection[int] = ()) -> None:
        self.taken: list[int] = []
        self.is_inside_character = False
        self.is_usual = is_usual
        self._end, self._unfit = end, unfit
        self.ends = frozenset({end, 77})

    def start(self) -> GrammarState:
        raise NotImplementedError

    def spelling(self) -> Written:
        return Written(self._end, is_usual=self.is_usual, unfit=self._unfit)

    def take(self, tokens: Iterable[int]) -> None:
        self.taken += tokens

    def take_fitting(self, tokens: Sequence[int]) -> int:
        end = next((place for place, token in enumerate(tokens) if token in self._unfit), len(tokens))
        self.take(tokens[:end])
        return end

    def rest(self, notation: Notation) -> str | None:
        return f"{notation} after {self.taken}"
