"""What the server has counted since it started: how responses ended, and how often the model slipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


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


async def counted(events: AsyncGenerator[T, None], counters: Counters) -> AsyncGenerator[T, None]:
    """The same events; a client that leaves before the end is counted."""
    ended = False
    try:
        async with aclosing(events):
            async for event in events:
                yield event
        ended = True
    finally:
        counters.cancelled += not ended
