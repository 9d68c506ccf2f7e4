"""Where a sequence's drafts come from: from its own tokens, or from a head that the runner has.

Takes a generation's tokens as they arrive, or the runner's guesses, and returns drafts for the model to check
in one step. It must not know the model. A wrong draft costs only time, so a generation whose drafts fail gets
fewer, or none for a while.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

LONGEST, SHORTEST = 4, 2  # the number of tokens that must match; longer matches are tried first
FIRST_PAUSE, LONGEST_PAUSE = 2, 64
# What a token costs to check, and to guess and check: shares of what a step costs whatever its rows. Measured
# with the embedded model on a CPU, where a step of one sequence takes 12 ms, and of eight 24.
CHECKED, GUESSED = 0.15, 0.2
FIRST_CHANCE, LARGEST_CHANCE = 0.7, 0.99
LEARNED = 0.1  # the weight of the newest guess


class Drafter(Protocol):
    """One sequence's source of drafts."""

    def wanted(self, running: int) -> int:
        """How many tokens the runner should guess after the next step; call it once for each step.

        `running`: sequences that share the step.
        """
        ...

    def take(self, guesses: Sequence[int]) -> None:
        """What the runner guessed after a step, perhaps nothing."""
        ...

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `tokens`, which must extend those of the last call."""
        ...

    def learn(self, drafted: int, accepted: int) -> None:
        """Reports how many of the last draft's tokens were right."""
        ...


class Pause:
    """Steps without drafts, more after each failure."""

    def __init__(self) -> None:
        self._left, self._next = 0, FIRST_PAUSE

    def passes(self) -> bool:
        """Whether this step is one of them."""
        if self._left == 0:
            return False
        self._left -= 1
        return True

    def learn(self, drafted: int, accepted: int) -> None:
        if accepted:
            self._next = FIRST_PAUSE
        elif drafted:
            self._left = self._next
            self._next = min(2 * self._next, LONGEST_PAUSE)


class TextDrafter:
    """Guesses those tokens that followed the same few tokens the last time.

    This helps when an answer repeats its prompt (editing code, quoting a tool).
    """

    def __init__(self, most: int) -> None:
        """`most`: the largest number of tokens in a draft."""
        self._most = most
        self._ends: list[dict[tuple[int, ...], int]] = [{} for _ in range(SHORTEST, LONGEST + 1)]
        self._indexed = 0
        self._pause = Pause()

    def wanted(self, running: int) -> int:
        return 0

    def take(self, guesses: Sequence[int]) -> None:
        """It asks for none."""

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        self._index(tokens)
        if self._pause.passes():
            return []
        for width in range(LONGEST, SHORTEST - 1, -1):
            end = self._ends[width - SHORTEST].get(tuple(tokens[-width:]))
            if end is not None:
                return list(tokens[end : end + min(most, self._most)])
        return []

    def learn(self, drafted: int, accepted: int) -> None:
        self._pause.learn(drafted, accepted)

    def _index(self, tokens: Sequence[int]) -> None:
        """Records where each group of tokens ended last, except for the one at the very end."""
        for end in range(max(self._indexed, SHORTEST), len(tokens)):
            for width in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[width - SHORTEST][tuple(tokens[end - width : end])] = end
        self._indexed = max(self._indexed, len(tokens))


def worth(running: int) -> float:
    """How likely a guess must be for its time, relative to a sequence's share of a step, at most 1.

    Many sequences share the cost of a step, and gain little from fewer steps.
    """
    return min(1.0, GUESSED * running / (1 + CHECKED * running))


class HeadDrafter:
    """Passes the runner's guesses on as drafts; wants as many as are likely to be right."""

    def __init__(self, most: int) -> None:
        """`most`: the largest number of tokens in a draft."""
        self._most = most
        self._guesses: list[int] = []
        self._chance = FIRST_CHANCE  # that a guess is right if those before it are
        self._pause = Pause()

    def wanted(self, running: int) -> int:
        if self._chance < worth(1):
            return 0 if self._pause.passes() else 1
        return min(self._most, int(math.log(worth(running)) / math.log(self._chance)))

    def take(self, guesses: Sequence[int]) -> None:
        self._guesses = list(guesses)

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        found, self._guesses = self._guesses[: max(0, most)], []
        return found

    def learn(self, drafted: int, accepted: int) -> None:
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self._chance = min(LARGEST_CHANCE, self._chance + LEARNED * (right - self._chance))
        if self._chance < worth(1):
            self._pause.learn(drafted, accepted)
