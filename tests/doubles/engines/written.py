"""Grammars without rules: one whose text shows what was taken of it, one whose masks a test chooses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

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


@dataclass
class Recorded:
    """A grammar that allows one set of tokens after the other, the last for ever; records accepted tokens."""

    sets: list[set[int]]
    size: int = 64
    accepted: list[int] = field(default_factory=list)

    def start(self) -> Recorded:
        return Recorded(self.sets, self.size, self.accepted)

    def mask(self) -> bytes:
        allowed = self.sets[min(len(self.accepted), len(self.sets) - 1)]
        bits = sum(1 << token for token in allowed)
        return bits.to_bytes(self.size // 8, "little")

    def accept(self, token: int) -> None:
        self.accepted.append(token)
