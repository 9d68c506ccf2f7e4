"""Responses and conversations in memory, and the database that holds them: SQLite without a file.

The database runs each function of a transaction in the caller's thread, because a change of threads takes
longer than most of them. Within some calls it deletes what exceeds its bounds, the oldest first.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.stores.sql.database import Transaction, Work
from gpt_oss_server.stores.sql.migrations import migrate
from gpt_oss_server.stores.sql.runs import forget_beginnings
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, sweep
from gpt_oss_server.stores.sqlite.connections import SqliteTransaction, add_clock, roll_back, unavailable

T = TypeVar("T")
_PLACE = "memory"
_PAGE = 1024  # bytes: small pages save memory where tables are nearly empty, and are no slower
_EXCESS = 1 / 300  # the part of a bound by which the store may exceed it
_SECONDS = 30.0  # between sweeps at most


class MemoryDatabase:
    place = _PLACE

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None  # the first write opens it
        self._closed = False
        counts = [most for most in (bounds.responses, bounds.conversations) if most is not None]
        ages = [age for age in (bounds.age, bounds.conversation_age, bounds.log_age) if age is not None]
        sizes = [size for size in (bounds.bytes, bounds.log_bytes) if size is not None]
        self._more_writes = _EXCESS * min(counts, default=float("inf"))
        self._more_bytes = _EXCESS * min(sizes, default=float("inf"))
        self._pause = min([_SECONDS, *(_EXCESS * age for age in ages)])
        self._writes, self._bytes, self._swept_at = 0, 0, clock()  # since the last sweep, and after it

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        return self.write_now(work)

    async def read(self, work: Work[T]) -> T:
        return self._run(work, writes=False)

    def write_now(self, work: Work[T]) -> T:
        return self._run(work, writes=True)

    def compact(self) -> None:
        """Deleted records leave room for the next ones."""

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _run(self, work: Work[T], *, writes: bool) -> T:
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"The store {_PLACE} is closed.")
            if self._connection is None:
                if not writes:
                    return work(SqliteTransaction(_empty()))
                self._connection = _connect(self._clock)
                _empty().backup(self._connection)
            try:
                return self._run_and_sweep(self._connection, work, writes)
            except sqlite3.Error as error:
                raise unavailable(_PLACE, error) from error

    def _run_and_sweep(self, connection: sqlite3.Connection, work: Work[T], writes: bool) -> T:
        if not writes:
            if self._clock() >= self._swept_at + self._pause:
                self._sweep(connection)
            return work(SqliteTransaction(connection))
        result = _commit(connection, work)
        self._writes += 1
        is_old = self._clock() >= self._swept_at + self._pause
        if is_old or self._writes >= self._more_writes or _size(connection) - self._bytes >= self._more_bytes:
            self._sweep(connection)
        return result

    def _sweep(self, connection: sqlite3.Connection) -> None:
        _commit(connection, self._delete)
        self._writes, self._bytes, self._swept_at = 0, _size(connection), self._clock()

    def _delete(self, tx: Transaction) -> None:
        sweep(tx, self._bounds)
        if self._bounds.log_bytes is not None:
            forget_beginnings(tx, self._bounds.log_bytes)


class MemoryStore(SqlStore):
    """A conversation lives until it is deleted, unless its age is bounded; that counts from its last change.

    The bytes are those of all records: a deleted response's turn counts as long as a child needs it.
    """

    def __init__(
        self,
        *,
        max_responses: int = 10_000,
        max_conversations: int = 10_000,
        max_bytes: int = 512 * 2**20,
        max_age: float | None = 30 * 24 * 3600.0,
        max_conversation_age: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        bounds = Bounds(max_responses, max_conversations, max_bytes, max_age, max_conversation_age)
        super().__init__(MemoryDatabase(bounds, clock))


def _connect(clock: Callable[[], float]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute(f"PRAGMA page_size = {_PAGE}")
    add_clock(connection, clock)
    return connection


@cache
def _empty() -> sqlite3.Connection:
    """The tables without rows: a database before its first write, which begins as a copy of them."""
    connection = _connect(time.monotonic)
    migrate(SqliteTransaction(connection), _PLACE)
    return connection


def _commit(connection: sqlite3.Connection, work: Work[T]) -> T:
    connection.execute("BEGIN")
    try:
        result = work(SqliteTransaction(connection))
    except BaseException:
        roll_back(connection)
        raise
    connection.execute("COMMIT")
    return result


def _size(connection: sqlite3.Connection) -> int:
    """The bytes of the pages in use."""
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    return int(pages - free) * _PAGE
