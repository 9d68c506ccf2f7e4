"""The database of several servers: it may restart, and they may start simultaneously."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import psycopg
import pytest

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.kinds.places import kept_where
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.stores.postgres.connections import SCHEMA
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.store import SqlStore
from tests.doubles.postgres import Postgres
from tests.doubles.stored import append, conversation, ids, item, part, put_turns, stored, texts
from tests.doubles.waiting import until


@pytest.fixture
async def database(postgres: Postgres) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(postgres.new_database())
    yield database
    await database.close()


async def test_two_servers_share_their_responses_and_conversations(postgres: Postgres) -> None:
    url = postgres.new_database()
    here, there = SqlStore(PostgresDatabase(url)), SqlStore(PostgresDatabase(url))
    await put_turns(here, a=None)
    await put_turns(there, b="a")
    await put_turns(here, c="b")
    assert await texts(there, "c") == ["a", "b", "c"]
    await here.put_conversation(conversation("conv_1"))
    stores = (here, there) * 8
    await asyncio.gather(*(s.append(append("conv_1", part(f"m{n}"))) for n, s in enumerate(stores)))
    assert sorted(await ids(here, "conv_1")) == sorted(f"m{n}" for n in range(16))
    await here.delete("a")
    assert await there.get("a") is None
    for store in (here, there):
        await store.close()


def test_servers_that_start_simultaneously_create_the_tables_once(postgres: Postgres) -> None:
    url = postgres.new_database()
    with ThreadPoolExecutor(8) as pool:
        databases = list(pool.map(lambda _: PostgresDatabase(url), range(8)))
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT number FROM {SCHEMA}.schema_version ORDER BY number").fetchall()
    assert len(rows) == len(set(rows)) > 0
    for database in databases:
        asyncio.run(database.close())


async def test_a_newer_schema_is_refused(postgres: Postgres) -> None:
    url = postgres.new_database()
    await PostgresDatabase(url).close()
    with psycopg.connect(url) as connection:
        connection.execute(f"INSERT INTO {SCHEMA}.schema_version VALUES (9999)")
    with pytest.raises(SettingsError, match="A newer gpt-oss-server wrote the store postgres"):
        PostgresDatabase(url)


def test_a_server_that_is_not_there_is_a_sentence_without_the_password() -> None:
    with pytest.raises(SettingsError, match=r"postgres://127.0.0.1:1/db cannot be used: ") as raised:
        PostgresDatabase("postgres://user:secret@127.0.0.1:1/db")
    assert "secret" not in str(raised.value)
    assert "secret" not in kept_where("postgres://user:secret@127.0.0.1:1/db?sslmode=disable")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingsError, match=r"pip install -e \S+\[postgres\]"):
        PostgresDatabase("postgres://user@127.0.0.1:1/db")


@pytest.mark.parametrize("odd", ["nul \x00", "long " * 2_000, "\\escape", "ü🙂", "lone \ud800"])
async def test_ids_of_any_characters_are_kept(store: SqlStore, odd: str) -> None:
    await store.put_conversation(conversation("conv_1"), [part(odd)])
    assert await store.item(odd) == item(odd)
    assert await store.get(odd) is None
    assert await ids(store, "conv_1") == [odd]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_in_mid_traffic_costs_retries_and_nothing_else(
    postgres: Postgres, store: SqlStore, mode: str
) -> None:
    await store.put_conversation(conversation("conv_1"))
    stops = asyncio.Event()
    kept: list[str] = []

    async def write(worker: int) -> None:
        number = 0
        while not stops.is_set():
            name = f"resp_{worker}_{number}"
            await store.put(stored(name), append("conv_1", part(f"msg_{worker}_{number}")))
            kept.append(name)
            number += 1

    async def grown() -> None:
        """Returns when twelve more are stored, however busy the machine is."""
        least = len(kept) + 12
        await until(lambda: len(kept) >= least)

    async with asyncio.TaskGroup() as group:
        for worker in range(12):
            group.create_task(write(worker))
        for _ in range(2):
            await grown()
            await asyncio.to_thread(postgres.stop, mode)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(postgres.start)
        await grown()
        stops.set()
    assert [name for name in kept if await store.get(name) is None] == []
    assert sorted(await ids(store, "conv_1")) == sorted(name.replace("resp", "msg") for name in kept)


class _BreaksAtCommit:
    """Cuts a thread's connection at its next commit: before or after it, or as the database crashes."""

    def __init__(self, database: PostgresDatabase, when: str, postgres: Postgres) -> None:
        self._when, self._postgres = when, postgres
        self.breaks = threading.Event()
        self._connect: Callable[[], Any] = database._connection
        database._connection = self._wrapped  # type: ignore[method-assign]

    def _wrapped(self) -> Any:
        connection = self._connect()
        execute = connection.execute

        def execute_or_break(query: str, *values: Any) -> Any:
            if query != "COMMIT" or self.breaks.is_set():
                return execute(query, *values)
            self.breaks.set()
            if self._when == "after":
                execute(query)
            elif self._when == "crash":
                self._crash(execute("SELECT pg_current_xact_id()::text").fetchone()[0])
            connection.close()
            raise psycopg.OperationalError("the connection broke")

        connection.execute = execute_or_break
        return connection

    def _crash(self, transaction: str) -> None:
        """Another transaction then gets the same id and commits."""
        self._postgres.stop("immediate")
        self._postgres.start()
        with psycopg.connect(self._postgres.url("postgres"), autocommit=True) as other:
            [again] = other.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",)
        assert again == transaction


@pytest.mark.parametrize("when", ["before", "after", "crash"])
async def test_a_commit_whose_answer_is_lost_takes_effect_once(
    postgres: Postgres, database: PostgresDatabase, store: SqlStore, when: str
) -> None:
    await store.put_conversation(conversation("conv_1"))
    broken = _BreaksAtCommit(database, when, postgres)
    items = await store.append(append("conv_1", part("msg_1")))
    assert broken.breaks.is_set()
    assert items == (item("msg_1"),)
    assert await ids(store, "conv_1") == ["msg_1"]


async def test_a_connection_that_is_stuck_in_a_pipeline_is_replaced(database: PostgresDatabase) -> None:
    """Seen as the database stopped: the connection stays open, and no statement succeeds on it any more."""
    attempts = iter(range(2))

    def work(tx: Transaction) -> list[tuple[int, ...]]:
        if next(attempts) == 0:
            stuck = database._connection().pgconn
            stuck.enter_pipeline_mode()
            stuck.send_query_params(b"SELECT 1", None)
            raise psycopg.OperationalError("the connection broke")
        return tx.rows("SELECT 7")

    assert await database.write(work) == [(7,)]
    assert list(attempts) == []


async def test_a_database_that_stays_away_is_a_clear_error(postgres: Postgres) -> None:
    store = SqlStore(PostgresDatabase(postgres.new_database(), patience=0.5))
    await asyncio.to_thread(postgres.stop)
    try:
        with pytest.raises(StoreUnavailable, match=r"The store postgres://127\.0\.0\.1.* failed"):
            await store.put(stored("resp_1"))
    finally:
        await asyncio.to_thread(postgres.start)
    await store.put(stored("resp_1"))
    await store.close()


async def test_transactions_in_each_other_s_way_run_again(database: PostgresDatabase) -> None:
    await database.write(lambda tx: tx.run("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)"))
    await database.write(lambda tx: tx.run_each("INSERT INTO t VALUES (?, 0)", [(1,), (2,)]))
    meet = threading.Barrier(2)

    def crossing(first: int, second: int) -> Callable[[Transaction], None]:
        attempts = count()

        def work(tx: Transaction) -> None:
            tx.run("UPDATE t SET n = n + 1 WHERE id = ?", first)
            if next(attempts) == 0:
                meet.wait()
            tx.run("UPDATE t SET n = n + 1 WHERE id = ?", second)

        return work

    await asyncio.gather(database.write(crossing(1, 2)), database.write(crossing(2, 1)))
    assert await database.read(lambda tx: tx.rows("SELECT n FROM t")) == [(2,), (2,)]


async def test_servers_of_one_database_share_the_sealing_key(postgres: Postgres) -> None:
    settings = Settings(store=postgres.new_database())
    here, there = open_stores(settings), open_stores(settings)
    assert there.sealer.open("reasoning", here.sealer.seal("reasoning", b"a thought")) == b"a thought"
    for stores in (here, there):
        await stores.close()
