"""Servers hear of each other's runs immediately, and only where a client reads them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gpt_oss_server.stores.events import Continuation
from gpt_oss_server.stores.postgres import listener
from gpt_oss_server.stores.postgres.connections import PostgresTransaction
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql import elsewhere
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.replicas import Replica
from tests.doubles.postgres import Postgres
from tests.doubles.stored import counted, known
from tests.doubles.waiting import until_found


class Server:
    def __init__(self, url: str, name: str) -> None:
        self.database = PostgresDatabase(url)
        self.logs = SqlEventLogs(self.database, Held(), Replica(machine=name))
        self.woken = asyncio.Event()
        self.logs.start(self.woken.set)

    async def hears(self) -> bool:
        return self.database.hears

    async def is_deaf(self) -> bool:
        return not self.database.hears


@pytest.fixture
async def servers(postgres: Postgres) -> AsyncIterator[tuple[Server, Server]]:
    url = postgres.new_database()
    here, there = Server(url, "here"), Server(url, "there")
    for server in (here, there):
        assert await until_found(server.hears, bool)
    yield here, there
    for server in (here, there):
        await server.database.close()


async def test_a_reader_elsewhere_waits_for_announcements_and_not_by_looking(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_HEARD_SECONDS", 3600.0)  # only an announcement can end a wait
    here, there = servers
    await there.logs.begin("run")
    log, counts = known(await here.logs.open("run")), counted(here.logs)
    async with aclosing(log.read()) as batches:
        for number in range(3):
            waiting = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0.3)
            looks = counts.reads
            await asyncio.sleep(0.3)
            assert counts.reads == looks, "it looks without a reason"
            await there.logs.append("run", number, [b"event %d" % number])
            assert await waiting == [b"event %d" % number]
        end = asyncio.ensure_future(anext(batches, None))
        await asyncio.sleep(0.3)
        await there.logs.end("run")
        assert await end is None


async def test_runs_without_a_reader_elsewhere_are_not_announced(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    monkeypatch.setattr(PostgresTransaction, "announce", lambda self, topic: announced.append(topic))
    _, there = servers
    await there.logs.begin("run")
    for number in range(5):
        await there.logs.append("run", number, [b"event"])
    assert announced == []


async def test_a_cancel_and_a_free_run_wake_the_other_server(servers: tuple[Server, Server]) -> None:
    here, there = servers
    await there.logs.begin("run", Continuation(b"request", None))
    there.woken.clear()
    await here.logs.request_cancel("run")
    await there.woken.wait()
    assert await there.logs.cancelled() == ["run"]
    here.woken.clear()
    await there.logs.give_back("run")
    await here.woken.wait()
    assert await here.logs.claim() is not None


async def test_after_a_restart_of_the_database_servers_look_until_they_hear_again(
    servers: tuple[Server, Server], postgres: Postgres
) -> None:
    here, there = servers
    await there.logs.begin("run")
    log = known(await here.logs.open("run"))
    postgres.stop()
    assert await until_found(here.is_deaf, bool)
    postgres.start()
    await there.logs.append("run", 0, [b"event"])
    async with aclosing(log.read()) as batches:
        assert await anext(batches) == [b"event"]
    assert await until_found(here.hears, bool)


async def test_a_connection_that_breaks_often_is_made_again_as_soon_as_the_first_time(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = servers
    assert here.database._listener is not None
    closing, pauses = here.database._listener._closing, list[float]()
    wait = closing.wait

    def noted(pause: float) -> bool:
        pauses.append(pause)
        return wait(0.0)

    monkeypatch.setattr(closing, "wait", noted)
    for count in range(1, 4):
        await here.database.read(_break_listeners)

        async def is_back(least: int = count) -> bool:
            return len(pauses) >= least and here.database.hears

        assert await until_found(is_back, bool)
    assert pauses == [listener._PAUSE] * 3


def _break_listeners(tx: Transaction) -> None:
    tx.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND position('pg_notify' IN query) > 0"
        " AND pid <> pg_backend_pid()"
    )
