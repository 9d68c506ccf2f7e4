"""The file of a SQLite store: who may read it, and what its problems are called.
Every kind of store keeps its contracts: in memory, in a file of SQLite and in Postgres.
"""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.documents.folder import FileFolder
from gpt_oss_server.stores.kinds.places import kept_where, sqlite_file
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.stores.memory.connection import ConnectionStore
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.allowances import Allowances, Charge
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.queues.batches import Batches
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.contracts.allowances_contract import AllowancesContract, used_up
from tests.contracts.completions_contract import CompletionsContract
from tests.contracts.embedded_contract import EmbeddedContract
from tests.contracts.event_log_contract import EventLogContract
from tests.contracts.files_contract import FilesContract
from tests.contracts.store_contract import StoreContract
from tests.contracts.vector_stores_contract import VectorStoresContract
from tests.doubles.postgres import Postgres
from tests.doubles.stored import known, position, put_turns, stored, texts, turn


async def test_what_is_stored_outlives_the_process(path: Path) -> None:
    for names, parents in (("ab", {"a": None, "b": "a"}), ("abc", {"c": "b"})):
        store = SqlStore(SqliteDatabase(path))
        await put_turns(store, **parents)
        assert await texts(store, names[-1]) == list(names)
        await store.close()


def test_only_its_owner_may_read_the_file(path: Path) -> None:
    path.touch(0o644)
    before = os.umask(0)
    try:
        store = SqlStore(SqliteDatabase(path))
        asyncio.run(store.put(stored("resp_1")))
        assert {name.stat().st_mode & 0o777 for name in path.parent.iterdir()} == {0o600}
        asyncio.run(store.close())
    finally:
        os.umask(before)


async def test_a_position_is_never_used_again(store: SqlStore) -> None:
    await store.put(turn("a", None))
    before = await position(store, "a")
    await store.delete("a")
    await store.put(turn("b", None))
    assert await position(store, "b") != before


async def test_sqlite_without_a_path_is_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stores, file = open_stores(Settings(store="sqlite")), sqlite_file("sqlite")
    assert file == tmp_path / "state" / "gpt-oss-server" / "store.sqlite"
    assert (file.exists(), file.parent.stat().st_mode & 0o777) == (True, 0o700)
    assert str(file) in kept_where("sqlite")
    await stores.close()


async def test_a_newer_schema_is_refused_with_a_sentence(path: Path) -> None:
    await SqliteDatabase(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO schema_version VALUES (9999)")
    connection.close()
    with pytest.raises(SettingsError, match=r"A newer gpt-oss-server wrote the store .* version 9999"):
        SqliteDatabase(path)


def test_another_file_and_a_missing_folder_are_refused(path: Path) -> None:
    path.write_bytes(content := b"not a database, but a text of a file. " * 99)
    with pytest.raises(SettingsError, match="it is no SQLite database"):
        SqliteDatabase(path)
    assert path.read_bytes() == content
    with pytest.raises(SettingsError, match="No such file or directory"):
        SqliteDatabase(path.parent / "missing" / "store.sqlite")


async def test_a_full_disk_is_a_clear_error_and_passes(database: SqliteDatabase, store: SqlStore) -> None:
    await store.put(stored("resp_1"))
    [[pages]] = await database.write(lambda tx: tx.rows("PRAGMA page_count"))
    await database.write(lambda tx: tx.rows(f"PRAGMA max_page_count = {pages + 4}"))
    puts = (store.put(stored(f"resp_big_{n}", tokens=100_000)) for n in range(3))
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert "its disk is full" in str(results[0])
    assert await store.get("resp_big_0") is None
    assert await store.get("resp_1") is not None
    await database.write(lambda tx: tx.rows("PRAGMA max_page_count = 100000"))
    await store.put(stored("resp_big_0", tokens=100_000))
    assert await store.get("resp_big_0") is not None


async def test_writes_that_waited_with_a_failing_one_are_stored(
    database: SqliteDatabase, store: SqlStore
) -> None:
    [[pages]] = await database.write(lambda tx: tx.rows("PRAGMA page_count"))
    await database.write(lambda tx: tx.rows(f"PRAGMA max_page_count = {pages + 30}"))
    records = [stored("resp_1"), stored("resp_big", tokens=500_000), stored("resp_2")]
    results = await asyncio.gather(*map(store.put, records), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StoreUnavailable, type(None)]
    assert await store.get("resp_2") == stored("resp_2")


async def test_a_read_only_file_is_a_clear_error(database: SqliteDatabase, store: SqlStore) -> None:
    await store.put(stored("resp_1"))
    database._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.put(stored("resp_2"))
    assert await store.get("resp_1") is not None


async def test_a_locked_file_is_a_clear_error_and_passes(
    path: Path, database: SqliteDatabase, store: SqlStore
) -> None:
    database._writer.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process has locked it"):
        await store.put(stored("resp_1"))
    other.execute("COMMIT")
    other.close()
    await store.put(stored("resp_1"))


def test_a_corrupt_file_is_a_clear_error(path: Path) -> None:
    async def fill() -> None:
        store = SqlStore(SqliteDatabase(path))
        for number in range(200):
            await store.put(stored(f"resp_{number}", tokens=500))
        await store.close()

    asyncio.run(fill())
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(SettingsError, match="it is damaged"):
        SqliteDatabase(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_on_a_small_disk_what_was_acknowledged_is_kept(small_disk: Path) -> None:
    path = small_disk / "store.sqlite"
    store = SqlStore(SqliteDatabase(path))
    kept: list[str] = []

    async def fill() -> None:
        while True:
            await store.put(stored(name := f"resp_{len(kept)}", tokens=5_000))
            kept.append(name)

    with pytest.raises(StoreUnavailable, match="its disk is full"):
        await fill()
    assert len(kept) > 3
    await store.close()
    store = SqlStore(SqliteDatabase(path))
    assert [await store.get(name) is not None for name in kept] == [True] * len(kept)
    await store.close()


class OnEachDatabase:
    database: Database

    @pytest.fixture(autouse=True, params=["memory", "sqlite", "postgres"])
    async def _opened(self, path: Path, request: pytest.FixtureRequest) -> AsyncIterator[None]:
        if request.param == "memory":
            self.database = MemoryDatabase(Bounds())
        elif request.param == "sqlite":
            self.database = SqliteDatabase(path)
        else:
            self.database = PostgresDatabase(request.getfixturevalue("postgres").new_database())
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
        below = await super().make()
        return cast(Store, WithConversations(below, below))


class TestCompletions(OnEachDatabase, CompletionsContract):
    pass


class TestFiles(OnEachDatabase, FilesContract):
    pass


class TestVectorStores(OnEachDatabase, VectorStoresContract):
    pass


class TestBatches(OnEachDatabase):
    async def test_batches_that_ended_long_ago_are_swept(self) -> None:
        batches = Batches(self.database)
        for name in ("ended", "open", "unclaimed"):
            await batches.add({"id": name, "status": "in_progress", "request_counts": {}}, {})
        ended, _ = known(await batches.claim(3_600)), await batches.claim(60)
        await batches.change(ended, status="completed")
        for age, left in ((60.0, {"ended", "open", "unclaimed"}), (0.0, {"open", "unclaimed"})):
            await Sweeper(self.database, Bounds(age=age)).sweep()
            assert {each["id"] for each in await batches.page(None, 9) or ()} == left


class TestEmbedded(OnEachDatabase, EmbeddedContract):
    pass


class TestFilesInAFolder(FilesContract):
    @pytest.fixture(autouse=True)
    def _in(self, tmp_path: Path) -> None:
        self.database, self.folder = MemoryDatabase(Bounds()), FileFolder(tmp_path / "content")


class TestSqlAllowances(OnEachDatabase, AllowancesContract):
    pass


class TestSqlEventLogs(OnEachDatabase, EventLogContract):
    pass


async def test_servers_that_share_a_database_share_its_allowances(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with AsyncExitStack() as stack:
        databases = [PostgresDatabase(url) for _ in range(3)]
        for database in databases:
            stack.push_async_callback(database.close)
        stores = list(map(Allowances, databases))
        counts = await asyncio.gather(*(used_up(store, "a", 60, 1) for store in stores))
        assert 60 <= sum(counts) < 90, "a second of growth is one"
        both = [Charge("x", 1, 240), Charge("y", 1, 240)]
        crossing = (both, both[::-1])
        await asyncio.gather(*(store.take(crossing[n % 2]) for n in range(60) for store in stores))
        [left] = await stores[0].take([Charge("x", 0, 240)])
        assert left.amount < 240
