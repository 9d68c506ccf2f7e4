"""Counts what a store reads and writes: transactions, rows, and bytes of the values in its statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.stores.memory.connection import ConnectionStore
from gpt_oss_server.stores.sql.database import Database, Row, Transaction, Value, Work


@dataclass
class Counted:
    reads: int = 0  # transactions
    writes: int = 0
    rows_read: int = 0
    rows: int = 0  # that statements wrote
    read: int = 0  # bytes
    written: int = 0


class _Transaction:
    def __init__(self, tx: Transaction, counted: Counted) -> None:
        self._tx = tx
        self._counted = counted
        self.announce = tx.announce

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
        self._counted.writes += 1
        return await self._database.write(lambda tx: work(_Transaction(tx, self._counted)), durable=durable)

    async def read(self, work: Work[Any]) -> Any:
        self._counted.reads += 1
        return await self._database.read(lambda tx: work(_Transaction(tx, self._counted)))


def counted(store: Any) -> Counted:
    """What a store in a database, or the one below a connection's, reads and writes from now on."""
    if isinstance(store, ConnectionStore):
        store = store._below
    counts = Counted()
    store.database = _Database(store.database, counts)
    return counts


def _size(values: Iterable[Value]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in values)
