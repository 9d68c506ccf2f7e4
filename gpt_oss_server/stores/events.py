"""What background runs and the store of their events, `sql/events`, have in common: records and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_oss_server.errors import EventsForgotten, InvalidRequest
from gpt_oss_server.stores.chain import Position


class LeaseLost(Exception):
    """Another process has claimed the run, or it was deleted. This process must not continue it."""


class TooManyRuns(Exception):
    """The owner of a new run has as many running as it may."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.most = most


@dataclass(frozen=True, slots=True)
class Continuation:
    """What another process needs to continue a run, besides its records."""

    request: bytes
    parent: Position | None  # the end of the history that the run continues; kept as long as the run


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a run, numbered from `first` on."""

    first: int = 0
    added: Sequence[bytes] = ()


NO_RECORDS = Records()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that this process now holds."""

    run_id: str
    request: bytes
    records: tuple[bytes, ...]
    events: int  # how many are in the log
    attempts: int  # this one included
    cancelled: bool
    owner: str = ""


def past_the_end(number: int) -> InvalidRequest:
    """The error for a reader that continues after an event that the run did not have."""
    return InvalidRequest(
        f"`starting_after` is {number}, but the response has ended before an event with that number.",
        param="starting_after",
    )


def events_forgotten(first: int) -> EventsForgotten:
    """The error for a reader of events before number `first`, the oldest that is kept."""
    return EventsForgotten(
        f"The events up to number {first - 1} are no longer kept, as the log grew too large. "
        "Retrieve the response without `stream` once it has ended.",
        param="starting_after",
    )
