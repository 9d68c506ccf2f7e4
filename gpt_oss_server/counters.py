"""What the server has counted since it started: how responses ended, and how often the model slipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Counters:
    def __init__(self) -> None:
        self.responses: Counter[str] = Counter()  # by status
        self.slips: Counter[str] = Counter()  # by kind
        self.cancelled = 0  # clients that left before the end

    def count(self, status: str, slips: Iterable[str]) -> None:
        self.responses[status] += 1
        self.slips.update(slips)

    def snapshot(self) -> dict[str, object]:
        return {
            "responses": dict(self.responses),
            "harmony_slips": dict(self.slips),
            "cancelled": self.cancelled,
        }
