"""A Postgres database: threads with a connection each, which survive a restart of the database.

A transaction that fails for a passing reason (the connection broke, the database starts or stops, another
transaction was in the way) runs again until the patience ends. If the connection breaks during a commit, the
database is asked whether it took effect: each thread has a row in a table of commits, which holds the number
of its last transaction. Postgres may use its own ids of transactions again after a crash.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.postgres.connections import (
    PostgresTransaction,
    connect,
    prepare,
    read_url,
    shown_place,
)
from gpt_oss_server.stores.sql.database import Work

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
_CONNECTIONS = 8
_PATIENCE = 30.0  # seconds that a transaction waits for the database to come back
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_PASSING = ("08", "40", "53", "55", "57")  # classes: connections, conflicts, resources, locks, operators
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # all statements see the same state
_WRITE = "BEGIN; UPDATE commits SET number = {number} WHERE thread = '{thread}'"


class _InDoubt(Exception):
    """The connection broke during the commit of the thread's transaction of this number."""

    def __init__(self, number: int, result: Any) -> None:
        super().__init__(number)
        self.number = number
        self.result = result


class _Thread(threading.local):
    """What a thread has of its own."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)  # of its row in the table of commits
        self.number = 0  # of its last transaction
        self.connection: psycopg.Connection[Any] | None = None


class PostgresDatabase:
    def __init__(self, url: str, *, patience: float = _PATIENCE) -> None:
        self._conninfo = read_url(url)  # first: it states that the package is missing
        import psycopg

        self.place = shown_place(self._conninfo)
        self._patience = patience
        self._closing = threading.Event()
        self._local = _Thread()
        self._connections: set[psycopg.Connection[Any]] = set()
        try:
            prepare(self._conninfo, self.place)
        except psycopg.Error as error:
            raise SettingsError(f"The store {self.place} cannot be used: {_first_line(error)}.") from error
        self._threads = ThreadPoolExecutor(_CONNECTIONS, "postgres")

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        return await self._submit(_WRITE, work)

    async def read(self, work: Work[T]) -> T:
        return await self._submit(_READ, work)

    def write_now(self, work: Work[T]) -> T:
        with self._apart() as connection, connection.transaction():
            return work(PostgresTransaction(connection))

    def compact(self) -> None:
        with self._apart() as connection:
            connection.execute("VACUUM ANALYZE")

    async def close(self) -> None:
        self._closing.set()
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def _submit(self, begin: str, work: Work[T]) -> T:
        if self._closing.is_set():
            raise StoreUnavailable(f"The store {self.place} is closed.")
        until = time.monotonic() + self._patience
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, begin, work, until)

    @contextmanager
    def _apart(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for the calling thread."""
        import psycopg

        try:
            with connect(self._conninfo) as connection:
                yield connection
        except psycopg.Error as error:
            raise StoreUnavailable(f"The store {self.place} failed: {_first_line(error)}.") from error

    # --- in the threads ----------------------------------------------------------------------------

    def _run(self, begin: str, work: Work[T], until: float) -> T:
        """Repeats the transaction until it succeeds, fails for good, or `until` has passed."""
        import psycopg

        pause, doubt = _PAUSE, None
        while True:
            try:
                connection = self._connection()
                if doubt is not None and self._has_committed(connection, doubt.number):
                    result: T = doubt.result
                    return result
                doubt = None
                return self._attempt(connection, begin, work)
            except _InDoubt as error:
                doubt = error
            except psycopg.Error as error:
                self._discard_unusable()
                if not _passes(error) or time.monotonic() + pause > until:
                    problem = f"The store {self.place} failed: {_first_line(error)}."
                    raise StoreUnavailable(f"{problem} Try again in a moment.") from error
            self._closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            if self._closing.is_set():
                until = min(until, time.monotonic() + 2 * _LONGEST_PAUSE)

    def _attempt(self, connection: psycopg.Connection[Any], begin: str, work: Work[T]) -> T:
        import psycopg

        writes, local = begin == _WRITE, self._local
        local.number += writes
        connection.execute(begin.format(number=local.number, thread=local.name))
        try:
            result = work(PostgresTransaction(connection))
        except BaseException:
            with suppress(psycopg.Error):  # the error that led here is the one to report
                connection.execute("ROLLBACK")
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError as error:
            if self._discard_unusable() and writes:
                raise _InDoubt(local.number, result) from error
            raise
        return result

    def _connection(self) -> psycopg.Connection[Any]:
        local = self._local
        if local.connection is None:
            local.connection = connect(self._conninfo, thread=local.name)
            self._connections.add(local.connection)
        return local.connection

    def _has_committed(self, connection: psycopg.Connection[Any], number: int) -> bool:
        """Raises an error that passes where the old connection still has the thread's row."""
        sql = "SELECT number FROM commits WHERE thread = %s FOR UPDATE NOWAIT"
        return connection.execute(sql, (self._local.name,)).fetchone() == (number,)

    def _discard_unusable(self) -> bool:
        """Returns whether the thread's connection was, so that the next attempt makes one.

        One that broke in the middle of a pipeline or a transaction may be open, and each statement fails.
        """
        from psycopg.pq import PipelineStatus, TransactionStatus

        connection = self._local.connection
        if connection is None:
            return False
        if not connection.closed:
            is_free = connection.info.transaction_status == TransactionStatus.IDLE
            if is_free and connection.info.pipeline_status == PipelineStatus.OFF:
                return False
        self._connections.discard(connection)
        self._local.connection = None
        connection.close()
        return True


def _passes(error: psycopg.Error) -> bool:
    """Whether the same transaction may succeed later."""
    import psycopg

    if error.sqlstate is None:  # no answer of the database: the connection broke or was never made
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate[:2] in _PASSING


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
