"""The contract of a store of event logs: the events of background runs, which clients can read again.

Events are encoded bytes, numbered from 0 in each run. Any number of readers gets them simultaneously, from
any event on; one that has caught up continues live until the run ends. It must not know their content. A new
store passes `tests/contracts/event_log_contract.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from gpt_oss_server.errors import EventsForgotten, InvalidRequest
from gpt_oss_server.stores.chain import Position


class LeaseLost(Exception):
    """Another process has claimed the run, or it was deleted. This process must not continue it."""


class TooManyRuns(Exception):
    """The owner of a new run has as many running as it may."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.most = most


class EventLog(Protocol):
    """The events of one run, for readers."""

    def read(self, after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """The events after number `after`, until the run ends. Raises `EventsForgotten` if some are gone."""

    async def check(self, after: int) -> None:
        """Raises `EventsForgotten` unless all events after number `after` are kept."""


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


class EventLogs(Protocol):
    """The logs of all runs, by the id of the run. As they are opened, they belong to the owner ""; see base.

    Appending to a log and ending it is up to the process that holds the run, whoever the owner is.
    """

    def of(self, owner: str) -> EventLogs:
        """The same logs as this owner sees them."""

    @property
    def linger(self) -> float:
        """Seconds between appends that are worth their cost; 0: append each event immediately."""

    async def begin(
        self, run_id: str, continuation: Continuation | None = None, *, most: int | None = None
    ) -> EventLog:
        """Raises `UnknownParent`, and `TooManyRuns` where `most` runs of the owner have not ended."""

    async def append(
        self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
    ) -> bool:
        """Adds events, numbered from `first` on, and records. Returns whether to cancel the run.

        The log skips events that it already has, so an interrupted writer can repeat its last call. Each call
        stores all of its events or none. Raises `LeaseLost` where the run now belongs to another process.
        """

    async def end(self, run_id: str) -> None:
        """Ends the log: readers end after its last event. The records are deleted."""

    async def open(self, run_id: str) -> EventLog | None:
        """The log of a run that is running, or that has ended and whose log is still kept."""

    async def request_cancel(self, run_id: str) -> None:
        """Marks the run, so that its next `append` returns true, in any process."""

    async def delete(self, run_id: str) -> None:
        """Deletes the log of a run that has ended."""

    async def close(self) -> None: ...


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


class Claims(Protocol):
    """The runs that processes share: each belongs to one of them, for as long as that makes progress."""

    def start(self, wake: Callable[[], None]) -> None:
        """`wake` is called in the event loop when there may be a run to claim or cancel; some are missed."""

    async def claim(self) -> Claimed | None:
        """Takes a run that has no process any more."""

    async def give_back(self, run_id: str) -> None:
        """Lets another process claim the run now, if none has yet."""

    async def renew(self) -> None:
        """Shows that this process lives. Call it often."""

    async def cancelled(self) -> list[str]:
        """The runs of this process that any process requested to cancel."""

    async def is_running(self, run_id: str, owner: str = "") -> bool:
        """Whether any process runs it, or is about to."""

    async def request(self, run_id: str, owner: str = "") -> bytes | None:
        """The request of a run that has not ended, in whichever process."""

    async def logged(self, run_id: str) -> list[bytes]:
        """The events of a run so far."""


async def has_event(log: EventLog, number: int) -> bool:
    """Whether the log has, or had, this event. Waits for it while the run is running."""
    try:
        async with aclosing(log.read(number - 1)) as batches:
            async for _ in batches:
                return True
    except EventsForgotten:
        return True
    return False


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
