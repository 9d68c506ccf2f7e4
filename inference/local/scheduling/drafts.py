"""Guesses the next tokens: those that followed the same few tokens the last time.

Takes a generation's tokens as they arrive and returns drafts for the model to check in one step. Drafts help
when an answer repeats its prompt (editing code, quoting a tool). It must not know the model. A wrong draft
costs only time, so a generation whose drafts fail gets none for a while.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2  # the number of tokens that must match; longer matches are tried first
FIRST_PAUSE, LONGEST_PAUSE = 2, 64


class Drafter:
    def __init__(self, most: int) -> None:
        """`most`: the largest number of tokens in a draft."""
        self._most = most
        self._ends: list[dict[tuple[int, ...], int]] = [{} for _ in range(SHORTEST, LONGEST + 1)]
        self._indexed = 0
        self._pause, self._next_pause = 0, FIRST_PAUSE

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `tokens`, which must extend those of the last call."""
        self._index(tokens)
        if self._pause > 0:
            self._pause -= 1
            return []
        for width in range(LONGEST, SHORTEST - 1, -1):
            end = self._ends[width - SHORTEST].get(tuple(tokens[-width:]))
            if end is not None:
                return list(tokens[end : end + min(most, self._most)])
        return []

    def learn(self, drafted: int, accepted: int) -> None:
        """Reports how many of the last draft's tokens were right."""
        if accepted:
            self._next_pause = FIRST_PAUSE
        elif drafted:
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, LONGEST_PAUSE)

    def _index(self, tokens: Sequence[int]) -> None:
        """Records where each group of tokens ended last, except for the one at the very end."""
        for end in range(max(self._indexed, SHORTEST), len(tokens)):
            for width in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[width - SHORTEST][tuple(tokens[end - width : end])] = end
        self._indexed = max(self._indexed, len(tokens))
