"""A store in a file of SQLite keeps the contracts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.connection import ConnectionStore
from gpt_oss_server.stores.events import EventLogs
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.contracts.event_log_contract import EventLogContract
from tests.contracts.store_contract import StoreContract
from tests.doubles.databases import LogsWithDatabase, evict


class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        self._most: int | None = None

    async def make(self) -> Store:
        return SqlStore(SqliteDatabase(self._folder / "store.sqlite"))

    async def make_small(self, most: int) -> Store:
        self._most = most
        return await self.make()

    async def settle(self, store: Store) -> None:
        await evict(store, self._most)


class TestConnectionOfSqlite(StoreContract):
    """A WebSocket's own store over one in SQLite."""

    @pytest.fixture(autouse=True)
    async def _in_folder(self, tmp_path: Path) -> AsyncIterator[None]:
        self._folder = tmp_path
        self._below: Store | None = None
        self._most: int | None = None
        yield
        if self._below is not None:  # which outlives the connection
            await self._below.close()

    async def make(self) -> Store:
        self._below = SqlStore(SqliteDatabase(self._folder / "store.sqlite"))
        return ConnectionStore(self._below)

    async def make_small(self, most: int) -> Store:
        self._most = most
        return await self.make()

    async def settle(self, store: Store) -> None:
        assert self._below is not None
        await evict(self._below, self._most)


class TestSqliteEventLogs(EventLogContract):
    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    async def make(self) -> EventLogs:
        return LogsWithDatabase(SqliteDatabase(self._folder / "store.sqlite"))
