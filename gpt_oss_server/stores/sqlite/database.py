"""A file of SQLite: one thread writes, a few read.

The writer takes all functions that wait into one transaction, each in a savepoint, so that many small writes
cost one commit. Readers see the last commit and never wait for the writer.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.stores.sql.database import Work
from gpt_oss_server.stores.sqlite.connections import (
    SqliteTransaction,
    connect,
    create,
    roll_back,
    unavailable,
)

T = TypeVar("T")
READERS = 4
_GROUP = 64  # writes of one transaction


@dataclass(slots=True)
class _Write:
    work: Work[Any]
    durable: bool
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: Exception | None = None


class SqliteDatabase:
    def __init__(self, path: Path) -> None:
        self._path, self.place = path, str(path)
        self._writer = create(path)
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="sqlite-writer", daemon=True)
        self._thread.start()
        self._readers = ThreadPoolExecutor(READERS, "sqlite-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Write(work, durable, future, loop))
        return await future

    async def read(self, work: Work[T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def write_now(self, work: Work[T]) -> T:
        with self._apart() as connection:
            connection.execute("BEGIN IMMEDIATE")
            result = work(SqliteTransaction(connection))
            connection.execute("COMMIT")
            return result

    def compact(self) -> None:
        with self._apart() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._readers.shutdown)
        for connection in (*self._connections, self._writer):
            with suppress(sqlite3.Error):  # nothing is lost: what was committed is in the file
                connection.close()

    @contextmanager
    def _apart(self) -> Iterator[sqlite3.Connection]:
        """A connection for the calling thread."""
        try:
            with closing(connect(self._path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error

    # --- in the readers' threads -------------------------------------------------------------------

    def _read(self, work: Work[T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self._path)
                connection.execute("PRAGMA query_only = ON")
                self._connections.append(connection)
            connection.execute("BEGIN")  # all statements see the same state
            try:
                return work(SqliteTransaction(connection))
            finally:
                roll_back(connection)
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error

    # --- in the writer's thread --------------------------------------------------------------------

    def _write_all(self) -> None:
        is_open = True
        while is_open:
            writes: list[_Write] = []
            while is_open and (not writes or (len(writes) < _GROUP and not self._queue.empty())):
                write = self._queue.get()
                is_open = write is not None
                if write is not None:
                    writes.append(write)
            # All in one transaction. Where the database fails, each in its own.
            if not self._commit(writes) and len(writes) > 1:
                for write in writes:
                    self._commit([write])
            _deliver(writes)

    def _commit(self, writes: Sequence[_Write]) -> bool:
        """Returns whether the database worked; the error is then that of each write."""
        connection = self._writer
        durable = any(write.durable for write in writes)
        try:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            for write in writes:
                self._attempt(connection, write)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            roll_back(connection)
            for write in writes:
                write.error = unavailable(self._path, error)
            return False
        return True

    def _attempt(self, connection: sqlite3.Connection, write: _Write) -> None:
        connection.execute("SAVEPOINT write")
        try:
            write.result, write.error = write.work(SqliteTransaction(connection)), None
        except sqlite3.Error:
            raise  # the whole transaction may be gone
        except Exception as error:
            write.error = error
            connection.execute("ROLLBACK TO write")
        connection.execute("RELEASE write")


def _deliver(writes: Sequence[_Write]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[_Write]] = {}
    for write in writes:
        loops.setdefault(write.loop, []).append(write)
    for loop, done in loops.items():
        with suppress(RuntimeError):  # the loop has ended, and no caller waits any more
            loop.call_soon_threadsafe(_settle, done)


def _settle(writes: Sequence[_Write]) -> None:
    for write in writes:
        if write.future.done():  # its caller was cancelled
            continue
        if write.error is not None:
            write.future.set_exception(write.error)
        else:
            write.future.set_result(write.result)
