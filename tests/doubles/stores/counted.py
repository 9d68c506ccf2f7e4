"""Counts what a store writes and reads: rows and bytes of the values in its statements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.memory.connection import ConnectionStore
from gpt_oss_server.stores.sql.database import Database, Row, Transaction, Value, Work
from gpt_oss_server.stores.sql.store import SqlStore


class Counted:
    def __init__(self) -> None:
        self.rows = 0  # that statements wrote
        self.written = 0  # bytes
        self.rows_read = 0
        self.read = 0  # bytes


class _Transaction:
    def __init__(self, tx: Transaction, counted: Counted) -> None:
        self._tx = tx
        self._counted = counted

    def rows(self, sql: str, *values: Value) -> list[Row]:
        self._write(sql, values)
        rows = self._tx.rows(sql, *values)
        self._counted.rows_read += len(rows)
        self._counted.read += sum(map(_size, rows))
        return rows

    def run(self, sql: str, *values: Value) -> int:
        self._write(sql, values)
        return self._tx.run(sql, *values)

    def run_each(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        rows = list(rows)
        for row in rows:
            self._write(sql, row)
        self._tx.run_each(sql, rows)

    def announce(self, topic: str) -> None:
        self._tx.announce(topic)

    def _write(self, sql: str, values: Iterable[Value]) -> None:
        if not sql.startswith(("SELECT", "WITH")):
            self._counted.rows += 1
            self._counted.written += _size(values)


class _Database:
    def __init__(self, database: Database, counted: Counted) -> None:
        self._database = database
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, work: Work[Any], *, durable: bool = False) -> Any:
        return await self._database.write(lambda tx: work(_Transaction(tx, self._counted)), durable=durable)

    async def read(self, work: Work[Any]) -> Any:
        return await self._database.read(lambda tx: work(_Transaction(tx, self._counted)))


def counted(store: Store) -> Counted:
    """What the store writes and reads from now on."""
    store = below(store)
    assert isinstance(store, SqlStore)
    found = Counted()
    store.database = _Database(store.database, found)
    return found


def below(store: Store) -> Store:
    """The store that keeps what outlives a connection."""
    return store._below if isinstance(store, ConnectionStore) else store


def _size(values: Iterable[Value]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in values)
