"""A store in Postgres keeps the contracts."""

from __future__ import annotations

import pytest

from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.events import EventLogs
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.store import SqlStore
from tests.contracts.event_log_contract import EventLogContract
from tests.contracts.store_contract import StoreContract
from tests.doubles.databases import LogsWithDatabase, evict
from tests.doubles.postgres import Postgres


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _on_server(self, postgres: Postgres) -> None:
        self._server = postgres
        self._most: int | None = None

    async def make(self) -> Store:
        return SqlStore(PostgresDatabase(self._server.new_database()))

    async def make_small(self, most: int) -> Store:
        self._most = most
        return await self.make()

    async def settle(self, store: Store) -> None:
        await evict(store, self._most)


class TestPostgresEventLogs(EventLogContract):
    @pytest.fixture(autouse=True)
    def _on_server(self, postgres: Postgres) -> None:
        self._server = postgres

    async def make(self) -> EventLogs:
        return LogsWithDatabase(PostgresDatabase(self._server.new_database()))
