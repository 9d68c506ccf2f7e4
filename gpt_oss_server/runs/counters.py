"""Counts since the server started: how responses ended, and the model's departures from Harmony."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from gpt_oss_server.errors import ApiError
from inference.engine import Finish

Outcome = Literal["completed", "incomplete", "failed"]


def outcome(finish: Finish | None, error: ApiError | None) -> Outcome:
    """The outcome of a response or a choice, from the engine's finish and the error that ended it, if any."""
    if error is not None:
        return "failed"
    return "incomplete" if finish is Finish.LENGTH else "completed"


class Counters:
    def __init__(self) -> None:
        self.responses: Counter[str] = Counter()  # by status
        self.slips: Counter[str] = Counter()  # by kind
        self.cancelled = 0  # by clients that disconnected before the end

    def count(self, status: str, slips: Iterable[str]) -> None:
        self.responses[status] += 1
        self.slips.update(slips)

    def snapshot(self) -> dict[str, object]:
        return {
            "responses": dict(self.responses),
            "harmony_slips": dict(self.slips),
            "cancelled": self.cancelled,
        }
