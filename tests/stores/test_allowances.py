"""Every store of allowances keeps the contract; one in a database does so for all servers together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpt_oss_server.stores.allowances import Allowances, Charge, MemoryAllowances
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.allowances import SqlAllowances
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.contracts.allowances_contract import AllowancesContract, used_up
from tests.doubles.postgres import Postgres


class TestMemoryAllowances(AllowancesContract):
    async def make(self) -> Allowances:
        return MemoryAllowances()


class TestSqliteAllowances(AllowancesContract):
    @pytest.fixture(autouse=True)
    async def _in_folder(self, tmp_path: Path) -> AsyncIterator[None]:
        self._database = SqliteDatabase(tmp_path / "store.sqlite")
        yield
        await self._database.close()

    async def make(self) -> Allowances:
        return SqlAllowances(self._database)


class TestPostgresAllowances(AllowancesContract):
    @pytest.fixture(autouse=True)
    async def _on_server(self, postgres: Postgres) -> AsyncIterator[None]:
        self._database = PostgresDatabase(postgres.new_database())
        yield
        await self._database.close()

    async def make(self) -> Allowances:
        return SqlAllowances(self._database)


async def test_servers_that_share_a_database_share_its_allowances(postgres: Postgres) -> None:
    url = postgres.new_database()
    databases = [PostgresDatabase(url) for _ in range(3)]
    try:
        stores = [SqlAllowances(database) for database in databases]
        counts = await asyncio.gather(*(used_up(store, "a", 60, 1) for store in stores))
        assert 60 <= sum(counts) < 90, "a second of growth is one"
        crossing = (
            [Charge("x", 1, 240), Charge("y", 1, 240)],
            [Charge("y", 1, 240), Charge("x", 1, 240)],
        )
        await asyncio.gather(*(store.take(crossing[n % 2]) for n in range(60) for store in stores))
        [left] = await stores[0].take([Charge("x", 0, 240)])
        assert left.amount < 240
    finally:
        for database in databases:
            await database.close()


async def test_the_memory_of_allowances_is_bounded() -> None:
    now = 0.0
    store = MemoryAllowances(lambda: now)
    for number in range(25_000):
        now += 1
        await store.take([Charge(f"requests {number}", 1, 60)])
    assert len(store._allowances) <= 10_001
