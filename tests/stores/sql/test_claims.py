"""Looking for runs to continue costs the database nothing while there are none."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from gpt_oss_server.stores.events import Continuation
from gpt_oss_server.stores.sql.database import Work
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sqlite.database import SqliteDatabase

T = TypeVar("T")


class Counting(SqliteDatabase):
    writes = 0

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        self.writes += 1
        return await super().write(work, durable=durable)


async def test_a_look_writes_only_where_a_run_is_free(tmp_path: Path) -> None:
    database = Counting(tmp_path / "store.sqlite")
    here = SqlEventLogs(database, Held(), Replica())
    there = SqlEventLogs(database, Held(), Replica(machine="another"), lease=60.0)
    await there.begin("held", Continuation(b"request", None))
    written = database.writes
    assert [await here.claim() for _ in range(5)] == [None] * 5
    assert database.writes == written
    await there.give_back("held")
    claimed = await here.claim()
    assert claimed is not None
    assert claimed.run_id == "held"
    assert await here.claim() is None
    await database.close()
