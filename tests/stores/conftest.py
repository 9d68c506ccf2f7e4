"""One Postgres server for all tests of stores, and a store in a file of SQLite."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.doubles.postgres import Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(path)
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> SqlStore:
    """In the file of SQLite, or in the database of a test's own fixture."""
    return SqlStore(database)
