"""A prompt before its tokens are joined: the segments that it consists of, in order.

Takes the segments that the model sees and the cue. Returns the prompt's length, and its tokens where they are
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_oss_server.harmony.history import Segment


@dataclass(frozen=True, slots=True)
class Layout:
    segments: Sequence[Segment]
    cue: Sequence[int]  # the start of the model's turn

    @property
    def length(self) -> int:
        return sum(len(segment.tokens) for segment in self.segments) + len(self.cue)

    def tokens(self) -> list[int]:
        tokens: list[int] = []
        for segment in self.segments:
            tokens += segment.tokens
        tokens += self.cue
        return tokens
