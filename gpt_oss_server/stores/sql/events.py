"""The events of background runs in a database, which clients in any process can read again.

Events are encoded bytes, numbered from 0 in each run. Any number of readers gets them simultaneously, from
any event on; one that has caught up continues live until the run ends. A reader in the process that holds a
run wakes when its events are stored; any other looks every tenth of a second, and less often while none come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from gpt_oss_server.errors import EventsForgotten
from gpt_oss_server.stores.events import (
    NO_RECORDS,
    Claimed,
    Continuation,
    LeaseLost,
    Records,
    events_forgotten,
)
from gpt_oss_server.stores.sql import runs
from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.owned import Owned
from gpt_oss_server.stores.sql.replicas import Replica

LEASE = 30.0  # seconds without progress after which another process may continue a run
_LINGER = 0.03  # seconds between the appends of a run
_LOST_SECONDS = 1.0  # between looks at a log that this process writes
_LOOK_SECONDS, _LONGEST_PAUSE = 0.1, 0.5  # between looks at a log that another process writes
_FORGOTTEN = 2**62


class Held:
    """The runs that this process holds, with their fences."""

    def __init__(self) -> None:
        self.fences: dict[str, int] = {}

    def guard(self, tx: Transaction, response_id: str) -> None:
        """Raises `LeaseLost` where another process has the run now, and lets none claim it until the end."""
        if (fence := self.fences.get(response_id)) is not None:
            sql = "UPDATE runs SET replica = replica WHERE id = ? AND fence = ? AND ended_at IS NULL"
            if not tx.run(sql, key_of(response_id), fence):
                raise LeaseLost(response_id)


class EventLogs(Owned):
    """The logs of an owner. What a process holds, it writes, whoever the owner is."""

    linger = _LINGER

    def __init__(
        self,
        database: Database,
        held: Held | None = None,
        replica: Replica | None = None,
        *,
        lease: float = LEASE,
    ) -> None:
        super().__init__(database)
        self.news: dict[str, asyncio.Event] = {}  # of the runs that are held here
        self._held = held or Held()
        self._here = replica or Replica()
        self._replica = str(self._here)
        self._lease = lease

    async def begin(
        self, run_id: str, continuation: Continuation | None = None, *, most: int | None = None
    ) -> EventLog:
        """Raises `UnknownParent`, and `TooManyRuns` where `most` runs of the owner have not ended."""
        run = (run_id, self._owner, continuation, most, self._replica, self._lease)
        self._take(run_id, await self.database.write(lambda tx: runs.begin_run(tx, *run), durable=True))
        return EventLog(self, run_id)

    async def append(
        self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
    ) -> bool:
        """Adds events, numbered from `first` on, and records. Returns whether to cancel the run.

        The log skips events that it already has, so an interrupted writer can repeat its last call. Each call
        stores all of its events or none. Raises `LeaseLost` where the run now belongs to another process.
        """
        held = (run_id, self._held.fences[run_id], self._lease)
        batch = (Records(first, tuple(events)), Records(records.first, tuple(records.added)))
        cancel = await self.database.write(lambda tx: runs.append_batch(tx, *held, *batch))
        self._wake(run_id)
        return cancel

    async def end(self, run_id: str) -> None:
        """Ends the log: readers end after its last event. The records are deleted."""
        fence = self._held.fences[run_id]
        await self.database.write(lambda tx: runs.end_run(tx, run_id, fence))
        self._let_go(run_id)

    async def open(self, run_id: str) -> EventLog | None:
        """The log of a run that is running, or that has ended and whose log is still kept."""
        state = await self.database.read(lambda tx: runs.log_state(tx, run_id, self._owner))
        return None if state is None else EventLog(self, run_id)

    async def request_cancel(self, run_id: str) -> None:
        """Marks the run, so that its next `append` returns true, in any process."""
        sql = "UPDATE runs SET cancel = 1 WHERE id = ? AND owner = ? AND ended_at IS NULL"
        await self.database.write(lambda tx: tx.run(sql, key_of(run_id), self._owner))

    async def delete(self, run_id: str) -> None:
        """Deletes the log of a run that has ended."""
        await self.database.write(lambda tx: runs.delete_ended(tx, key_of(run_id), self._owner))

    # --- which process runs what ---------------------------------------------------------------------

    async def claim(self) -> Claimed | None:
        """Takes a run that has no process any more."""

        def is_due(tx: Transaction) -> bool:
            free = tx.rows(f"SELECT 1 FROM runs WHERE {runs.FREE} LIMIT 1", self._replica)
            return bool(free) or any(map(self._here.knows_dead, runs.holders(tx)))

        def work(tx: Transaction) -> tuple[Claimed, int] | None:
            for dead in filter(self._here.knows_dead, runs.holders(tx)):
                tx.run("UPDATE runs SET lease_until = 0 WHERE replica = ? AND ended_at IS NULL", dead)
            return runs.claim_run(tx, self._replica, self._lease)

        # An idle server looks twice a second: without a run to claim, it writes nothing.
        due = await self.database.read(is_due)
        if not due or (claim := await self.database.write(work, durable=True)) is None:
            return None
        claimed, fence = claim
        if claimed.run_id in self._held.fences:  # this process has yet to notice that it had lost the run
            await self.database.write(lambda tx: runs.give_back(tx, claimed.run_id, fence))
            return None
        self._take(claimed.run_id, fence)
        return claimed

    async def give_back(self, run_id: str) -> None:
        """Lets another process claim the run now, if none has yet."""
        fence = self._held.fences[run_id]
        await self.database.write(lambda tx: runs.give_back(tx, run_id, fence))
        self._let_go(run_id)

    async def renew(self) -> None:
        """Shows that this process lives. Call it often. It renews ended leases too, until another claims."""
        sql = "UPDATE runs SET lease_until = {now} + ? WHERE replica = ? AND ended_at IS NULL"
        await self.database.write(lambda tx: tx.run(sql, self._lease, self._replica))

    async def cancelled(self) -> list[str]:
        """The runs of this process that any process requested to cancel."""
        sql = "SELECT id FROM runs WHERE replica = ? AND cancel = 1 AND ended_at IS NULL"
        return [key for [key] in await self.database.read(lambda tx: tx.rows(sql, self._replica))]

    async def is_running(self, run_id: str, owner: str = "") -> bool:
        """Whether any process runs it, or is about to."""
        state = await self.database.read(lambda tx: runs.log_state(tx, run_id, owner))
        return state is not None and not state.ended

    async def request(self, run_id: str, owner: str = "") -> bytes | None:
        """The request of a run that has not ended, in whichever process."""
        sql = "SELECT request FROM runs WHERE id = ? AND owner = ? AND ended_at IS NULL"
        rows = await self.database.read(lambda tx: tx.rows(sql, key_of(run_id), owner))
        return None if not rows or rows[0][0] is None else bytes(rows[0][0])

    async def logged(self, run_id: str) -> list[bytes]:
        """The events of a run so far."""
        return await self.database.read(lambda tx: runs.read_events(tx, run_id, -1, runs.ALL))

    def _take(self, run_id: str, fence: int) -> None:
        self._held.fences[run_id] = fence
        self.news[run_id] = asyncio.Event()

    def _let_go(self, run_id: str) -> None:
        self._wake(run_id)
        del self.news[run_id]
        del self._held.fences[run_id]

    def _wake(self, run_id: str) -> None:
        self.news[run_id].set()
        self.news[run_id] = asyncio.Event()


class EventLog:
    """The events of one run, for readers."""

    def __init__(self, logs: EventLogs, run_id: str) -> None:
        self._logs = logs
        self._run_id = run_id

    async def check(self, after: int) -> None:
        """Raises `EventsForgotten` unless all events after number `after` are kept."""
        state, _ = await self._look(after)
        if state is None:
            raise events_forgotten(_FORGOTTEN)

    async def read(self, after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """The events after number `after`, until the run ends. Raises `EventsForgotten` if some are gone."""
        at, pause = after, _LOOK_SECONDS
        while True:
            news = self._logs.news.get(self._run_id)  # before the look: later events wake this reader
            state, events = await self._look(at)
            if events:
                at, pause = at + len(events), _LOOK_SECONDS
                yield events
            elif state is None:
                raise events_forgotten(at + 2)
            elif state.ended:
                return
            elif news is None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                with suppress(TimeoutError):  # another process may have continued the run
                    await asyncio.wait_for(news.wait(), _LOST_SECONDS)

    async def has(self, number: int) -> bool:
        """Whether the log has, or had, this event. Waits for it while the run is running."""
        try:
            async with aclosing(self.read(number - 1)) as batches:
                async for _ in batches:
                    return True
        except EventsForgotten:
            return True
        return False

    async def _look(self, after: int) -> tuple[runs.LogState | None, list[bytes]]:
        """The state of the log, and some events after number `after`."""

        def work(tx: Transaction) -> tuple[runs.LogState | None, list[bytes]]:
            state = runs.log_state(tx, self._run_id, self._logs._owner)
            if state is None or state.next_event <= after + 1:
                return state, []
            return state, runs.read_events(tx, self._run_id, after)

        return await self._logs.database.read(work)
