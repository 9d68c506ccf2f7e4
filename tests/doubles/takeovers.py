"""Processes that stop at any point of a background response, and others that continue it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.events import NO_RECORDS, Continuation, EventLog, Records
from gpt_oss_server.stores.keep import Stores
from gpt_oss_server.stores.sql.completions import SqlCompletions
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.toolset.offered import ToolsetMaker
from tests.doubles.apis.services import responses_service
from tests.doubles.waiting import until_found

NOW = 1_800_000_000.0


@dataclass
class Appended:
    """What a run wrote to its log, append by append."""

    run_id: str = ""
    continuation: Continuation | None = None
    batches: list[tuple[int, list[bytes], Records]] = field(default_factory=list)


class RecordingLogs(SqlEventLogs):
    """Logs without linger that also show what is written to them: one append for each batch of events."""

    linger = 0.0
    appended = Appended()

    async def begin(
        self, run_id: str, continuation: Continuation | None = None, *, most: int | None = None
    ) -> EventLog:
        self.appended = Appended(run_id, continuation)
        return await super().begin(run_id, continuation, most=most)

    async def append(
        self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
    ) -> bool:
        kept = Records(records.first, list(records.added))
        self.appended.batches.append((first, list(events), kept))
        return await super().append(run_id, first, events, records)


class Process:
    """A server over a file of SQLite, in this process but with a name of its own."""

    def __init__(self, path: Path, engine: Any, encoding: Encoding, name: str, **settings: Any) -> None:
        database, held = SqliteDatabase(path), Held()
        self.logs = RecordingLogs(database, held, Replica("elsewhere", 1, name), lease=600)
        self.stores = Stores(
            SqlStore(database, guard=held.guard), self.logs, SqlCompletions(database), claims=self.logs
        )
        given = Settings(python="off", **settings)
        parts: dict[str, Any] = {"encoding": encoding, "stores": self.stores, "clock": lambda: NOW}
        self.service = responses_service(engine, given, tools=ToolsetMaker(given), **parts)

    async def run_to_its_end(self, **body: Any) -> tuple[Appended, list[dict[str, Any]]]:
        run = await self.service.start(LOCAL, {"input": "Hi", "background": True, **body})
        log = await self.service.run_in_background(run)
        events = [event async for batch in log.read() for event in batch]
        return self.logs.appended, parsed(events)

    async def dies_after(self, appended: Appended, batches: int) -> None:
        """Leaves a run as a process leaves it that dies after so many appends."""
        await SqlEventLogs.begin(self.logs, appended.run_id, appended.continuation)
        for batch in appended.batches[:batches]:
            await SqlEventLogs.append(self.logs, appended.run_id, *batch)
        await self.logs.database.write(lambda tx: tx.run("UPDATE runs SET lease_until = 0"))

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        log = await self.logs.open(run_id)
        assert log is not None
        return parsed([event async for batch in log.read() for event in batch])

    async def takes_over(self) -> None:
        """Continues what can be claimed, to its end."""
        service = self.service
        service.continuing.start()
        takeover = service.continuing._takeover
        assert takeover is not None

        async def running() -> int:
            return len(service.background._running)

        await takeover.look()
        await until_found(running, lambda count: not count)

    async def close(self) -> None:
        await self.service.close()


def parsed(events: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(event.partition(b"data: ")[2]) for event in events]


Making = Callable[..., Process]
