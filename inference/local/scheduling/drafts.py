"""Where a sequence's drafts come from: its own tokens, a prediction of its output, or a head of the runner.

Takes a generation's tokens as they arrive, its prediction, or the runner's guesses, and returns drafts for
the model to check in one step. It must not know the model. A wrong draft costs only time, so a generation
whose drafts fail gets fewer, or none for a while.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

LONGEST, SHORTEST = 4, 2  # the number of tokens that must match; longer matches are tried first
FIRST_PAUSE, LONGEST_PAUSE = 2, 64
FIRST_CHANCE, LARGEST_CHANCE = 0.7, 0.99
LEARNED = 0.1  # the weight of the newest guess
LEAST_PREDICTED, FIRST_PREDICTED = 4, 8  # tokens of a prediction in a draft
# How far from where the output has left a prediction they may meet again: by one token alone, or by more.
NEAR, FAR = 32, 1_000


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """Shares of what a step costs whatever its rows."""

    row: float  # of a step's first row
    fading: float  # each further row costs this share of the one before it,
    even: float  # and this: what rows do not share
    guess: float  # one sequence's guess, without the row that checks it
    round: float  # a guess of each sequence, however many there are

    def worth(self, running: int) -> float:
        """How likely a guess must be for its time, relative to a sequence's share of a step, at most 1.
        `running`: sequences that share the step. Many gain little from fewer steps."""
        rows = running if self.fading == 1 else (1 - self.fading**running) / (1 - self.fading)
        step = 1 + self.row * rows + self.even * running
        further = self.row * self.fading**running + self.even
        return min(1.0, (self.round + running * (self.guess + further)) / step)


# Measured with the embedded model, where a step of one sequence takes 12 ms, and of eight 24.
ON_CPU = DraftCosts(row=0.15, fading=1.0, even=0.0, guess=0.05, round=0.0)


def costs_on_gpu(experts: int, experts_per_token: int) -> DraftCosts:
    """A step reads each expert that some row uses, once: the more rows, the fewer further ones.

    From the 20b's steps of 1, 8 and 32 rows on an H200 (1.6, 4.0 and 5.6 ms); a round of guesses is estimated
    from the bytes of a published head. Neither was measured with a head.
    """
    return DraftCosts(row=0.58, fading=1 - experts_per_token / experts, even=0.02, guess=0.0, round=0.2)


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


class Drafter:
    """One sequence's source of drafts; this one has none."""

    def __init__(self) -> None:
        self._pause = Pause()

    def wanted(self, running: int) -> int:
        """How many tokens to guess after the next step, which `running` share; call it once for each step."""
        return 0

    def take(self, guesses: Sequence[int]) -> None:
        """What the runner guessed after a step, perhaps nothing."""

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `tokens`, which must extend those of the last call."""
        return []

    def learn(self, drafted: int, accepted: int) -> None:
        """Reports how many of the last draft's tokens were right."""
        self._pause.learn(drafted, accepted)


class TextDrafter(Drafter):
    """Guesses those tokens that followed the same few tokens the last time. This helps when an answer repeats
    its prompt (editing code, quoting a tool)."""

    def __init__(self, most: int) -> None:
        """`most`: the largest number of tokens in a draft."""
        super().__init__()
        self._most = most
        self._ends: list[dict[tuple[int, ...], int]] = [{} for _ in range(SHORTEST, LONGEST + 1)]
        self._indexed = 0

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        self._index(tokens)
        if self._pause.passes():
            return []
        for width in range(LONGEST, SHORTEST - 1, -1):
            end = self._ends[width - SHORTEST].get(tuple(tokens[-width:]))
            if end is not None:
                return list(tokens[end : end + min(most, self._most)])
        return []

    def _index(self, tokens: Sequence[int]) -> None:
        """Records where each group of tokens ended last, except for the one at the very end."""
        for end in range(max(self._indexed, SHORTEST), len(tokens)):
            for width in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[width - SHORTEST][tuple(tokens[end - width : end])] = end
        self._indexed = max(self._indexed, len(tokens))


class HeadDrafter(Drafter):
    """Passes the runner's guesses on as drafts; wants as many as are likely to be right."""

    def __init__(self, most: int, costs: DraftCosts) -> None:
        """`most`: the largest number of tokens in a draft."""
        super().__init__()
        self._most, self._costs = most, costs
        # Below this chance guesses rest, and few are tried; a sequence alone is what it will often be again.
        self._alone = self._least = costs.worth(1)
        self._guesses: list[int] = []
        self._chance = FIRST_CHANCE  # that a guess is right if those before it are

    def wanted(self, running: int) -> int:
        worth = self._costs.worth(running)
        self._least = min(self._alone, worth)
        if self._chance < self._least:
            return 0 if self._pause.passes() else 1
        return min(self._most, int(math.log(worth) / math.log(self._chance)))

    def take(self, guesses: Sequence[int]) -> None:
        self._guesses = list(guesses)

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        draft, self._guesses = self._guesses[: max(0, most)], []
        return draft

    def learn(self, drafted: int, accepted: int) -> None:
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self._chance = min(LARGEST_CHANCE, self._chance + LEARNED * (right - self._chance))
        if self._chance < self._least:
            super().learn(drafted, accepted)


class PredictedDrafter(Drafter):
    """Follows a text that the request expects: where the output leaves it, finds the place where both meet
    again. Where it has none, another drafter may have one."""

    def __init__(self, predicted: Sequence[int], most: int, other: Drafter) -> None:
        """`most`: the largest number of tokens in a draft."""
        super().__init__()
        self.follows = False  # whether the last draft is from the prediction
        self._predicted, self._other = predicted, other
        self._next = 0  # where the prediction goes on if the output follows it
        self._most, self._size = most, min(most, FIRST_PREDICTED)

    def wanted(self, running: int) -> int:
        return 0 if self.follows else self._other.wanted(running)

    def take(self, guesses: Sequence[int]) -> None:
        self._other.take(guesses)

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        end = None if self._pause.passes() else self._place(tokens)
        self.follows = end is not None and most > 0
        if end is not None:
            self._next = end
            return list(self._predicted[end : end + min(most, self._size)])
        return self._other.draft(tokens, most)

    def _place(self, tokens: Sequence[int]) -> int | None:
        """The end of the longest piece that both have, nearest to what the output has followed."""
        found, at = (0, 0, 0), max(0, self._next - FAR)  # the piece's length, how near it is, its end
        stop = min(len(self._predicted) - 1, self._next + FAR)
        with suppress(ValueError):  # the newest token does not come again
            while True:
                at = self._predicted.index(tokens[-1], at, stop) + 1
                found = max(found, (self._shared(tokens, at), -abs(at - self._next), at))
        length, nearness, end = found
        return end if length > 1 or (length == 1 and nearness > -NEAR) else None

    def _shared(self, tokens: Sequence[int], end: int) -> int:
        """How many tokens before `end` are the newest ones, where the very newest is."""
        own = zip(
            reversed(tokens[-LONGEST:]), reversed(self._predicted[max(0, end - LONGEST) : end]), strict=False
        )
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], own))

    def learn(self, drafted: int, accepted: int) -> None:
        if not self.follows:
            self._other.learn(drafted, accepted)
            return
        self._next += accepted + 1
        size = 2 * self._size if accepted == drafted else max(LEAST_PREDICTED, self._size // 2)
        self._size = min(self._most, size)
        super().learn(drafted, accepted)
