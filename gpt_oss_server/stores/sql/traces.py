"""What traces are made of, in a database: stored and deleted with their responses."""

from __future__ import annotations

from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.database import Database, Transaction


class SqlTraces:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, response_id: str) -> bytes | None:
        sql = "SELECT body FROM traces WHERE id = ?"
        rows = await self._database.read(lambda tx: tx.rows(sql, key_of(response_id)))
        return bytes(rows[0][0]) if rows else None


def put_trace(tx: Transaction, key: str, body: bytes) -> None:
    tx.run("INSERT INTO traces (id, size, body) VALUES (?, ?, ?)", key, len(body), body)


def delete_trace(tx: Transaction, key: str) -> bool:
    return bool(tx.run("DELETE FROM traces WHERE id = ?", key))


def trace_bytes(tx: Transaction) -> int:
    [[used]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM traces")
    return int(used)
