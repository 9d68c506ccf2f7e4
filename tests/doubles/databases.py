"""Stores on a database, for the contracts."""

from __future__ import annotations

from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper


class LogsWithDatabase(SqlEventLogs):
    """Event logs that close their database, which the store of responses does in a server."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, Held(), Replica())

    async def close(self) -> None:
        await super().close()
        await self._database.close()


async def evict(store: Store, most: int | None) -> None:
    """What the sweeper of a store with these bounds does between requests."""
    assert isinstance(store, SqlStore)
    await Sweeper(store.database, Bounds(responses=most, conversations=most)).sweep()
