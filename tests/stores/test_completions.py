"""Every store of chat completions keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpt_oss_server.stores.completions import Completions, MemoryCompletions
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.completions import SqlCompletions
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.contracts.completions_contract import CompletionsContract, completion, ids
from tests.doubles.postgres import Postgres


class TestMemoryCompletions(CompletionsContract):
    async def make(self) -> Completions:
        return MemoryCompletions()


class TestSqliteCompletions(CompletionsContract):
    @pytest.fixture(autouse=True)
    async def _in_folder(self, tmp_path: Path) -> AsyncIterator[None]:
        self._database = SqliteDatabase(tmp_path / "store.sqlite")
        yield
        await self._database.close()

    async def make(self) -> Completions:
        return SqlCompletions(self._database)


class TestPostgresCompletions(CompletionsContract):
    @pytest.fixture(autouse=True)
    async def _on_server(self, postgres: Postgres) -> AsyncIterator[None]:
        self._database = PostgresDatabase(postgres.new_database())
        yield
        await self._database.close()

    async def make(self) -> Completions:
        return SqlCompletions(self._database)


async def test_the_oldest_in_memory_go_first() -> None:
    store = MemoryCompletions(most=2)
    for number in range(4):
        await store.put(completion(number))
    assert await ids(store, None, 9, newest_first=False) == ["2", "3"]
