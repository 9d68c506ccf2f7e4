"""The contract of a store of event logs: what background runs send, kept so that it can be read again.

In: the events of runs as the bytes that are sent, numbered from 0 in each run, the end of each run, and marks
that a run is to be cancelled. Out: the events to any number of readers at once, from any number on; a reader
that has caught up continues live until the run ends. It must not know what the events say. A new store
passes `tests/contracts/event_log_contract.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from gpt_oss_server.errors import EventsForgotten


class EventLog(Protocol):
    """The events of one run, for a reader."""

    def read(self, after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """The events after number `after`, in batches, until the run has ended.

        Raises `EventsForgotten` where the next event is no longer kept.
        """
        ...

    async def check(self, after: int) -> None:
        """Raises `EventsForgotten` unless all events after number `after` are kept."""
        ...


class EventLogs(Protocol):
    """The logs of all runs, by the id of the run."""

    async def begin(self, run_id: str) -> EventLog: ...

    async def append(self, run_id: str, first: int, events: Sequence[bytes]) -> bool:
        """Adds events, the first of which has the number `first`; returns whether the run is to be cancelled.

        Events that the log has already are passed over, so that a writer that was interrupted repeats its
        last call. Each call stores all of its events or none.
        """
        ...

    async def end(self, run_id: str) -> None:
        """No more events come: readers end after the last one."""
        ...

    async def open(self, run_id: str) -> EventLog | None:
        """The log of a run that is running, or has ended and is still kept."""
        ...

    async def request_cancel(self, run_id: str) -> None:
        """Marks the run, so that its next `append` returns true, whichever process writes it."""
        ...

    async def delete(self, run_id: str) -> None:
        """Deletes the log of a run that has ended."""
        ...

    async def close(self) -> None: ...


def events_forgotten(first: int) -> EventsForgotten:
    """The error for a reader that wants events before number `first`, the oldest that is kept."""
    return EventsForgotten(
        f"The events up to number {first - 1} are no longer kept: there were too many. "
        "Retrieve the response without `stream` once it has ended.",
        param="starting_after",
    )
