"""Every kind of store keeps its contracts: in memory, in a file of SQLite and in Postgres."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from gpt_oss_server.stores.allowances import Allowances, Charge, MemoryAllowances
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.completions import Completions
from gpt_oss_server.stores.events import EventLogs
from gpt_oss_server.stores.memory.connection import ConnectionStore
from gpt_oss_server.stores.memory.events import MemoryEventLogs
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.allowances import SqlAllowances
from gpt_oss_server.stores.sql.completions import SqlCompletions
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.contracts.allowances_contract import AllowancesContract, used_up
from tests.contracts.completions_contract import CompletionsContract
from tests.contracts.event_log_contract import EventLogContract
from tests.contracts.store_contract import StoreContract
from tests.doubles.postgres import Postgres
from tests.doubles.stored import keep_around


def opened(kind: str, folder: Path, request: pytest.FixtureRequest) -> Database:
    if kind == "memory":
        return MemoryDatabase(Bounds())
    if kind == "sqlite":
        return SqliteDatabase(folder / "store.sqlite")
    postgres: Postgres = request.getfixturevalue("postgres")
    return PostgresDatabase(postgres.new_database())


class OnEachDatabase:
    database: Database

    @pytest.fixture(autouse=True, params=["memory", "sqlite", "postgres"])
    async def _opened(self, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[None]:
        self.database = opened(request.param, tmp_path, request)
        yield
        await self.database.close()


class SqlStoreContract(StoreContract):
    database: Database
    bounds = Bounds()

    async def make(self) -> Store:
        return SqlStore(self.database)

    async def make_small(self, most: int) -> Store:
        self.bounds = Bounds(responses=most, conversations=most)
        return await self.make()

    async def settle(self, store: Store) -> None:
        await Sweeper(self.database, self.bounds).sweep()


class TestStore(OnEachDatabase, SqlStoreContract):
    pass


class WithConversations(ConnectionStore):
    """The responses of a WebSocket's own store, and the conversations of the one below."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # as a copy has none yet
            raise AttributeError(name)
        return getattr(self._conversations, name)


class TestConnectionStore(SqlStoreContract):
    async def make(self) -> Store:
        self.database = MemoryDatabase(Bounds())
        return cast(Store, WithConversations(keep_around(await super().make())))


class TestCompletions(OnEachDatabase, CompletionsContract):
    async def make(self) -> Completions:
        return SqlCompletions(self.database)


class TestSqlAllowances(OnEachDatabase, AllowancesContract):
    async def make(self) -> Allowances:
        return SqlAllowances(self.database)


class TestMemoryAllowances(AllowancesContract):
    async def make(self) -> Allowances:
        return MemoryAllowances()


class TestSqlEventLogs(OnEachDatabase, EventLogContract):
    async def make(self) -> EventLogs:
        return SqlEventLogs(self.database, Held(), Replica())


class TestMemoryEventLogs(EventLogContract):
    async def make(self) -> EventLogs:
        return MemoryEventLogs()


async def test_servers_that_share_a_database_share_its_allowances(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with AsyncExitStack() as stack:
        databases = [PostgresDatabase(url) for _ in range(3)]
        for database in databases:
            stack.push_async_callback(database.close)
        stores = list(map(SqlAllowances, databases))
        counts = await asyncio.gather(*(used_up(store, "a", 60, 1) for store in stores))
        assert 60 <= sum(counts) < 90, "a second of growth is one"
        both = [Charge("x", 1, 240), Charge("y", 1, 240)]
        crossing = (both, both[::-1])
        await asyncio.gather(*(store.take(crossing[n % 2]) for n in range(60) for store in stores))
        [left] = await stores[0].take([Charge("x", 0, 240)])
        assert left.amount < 240


async def test_the_memory_of_allowances_is_bounded() -> None:
    now = 0.0
    store = MemoryAllowances(lambda: now)
    for number in range(25_000):
        now += 1
        await store.take([Charge(f"requests {number}", 1, 60)])
    assert len(store._allowances) <= 10_001
