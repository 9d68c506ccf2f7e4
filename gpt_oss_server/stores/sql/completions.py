"""Chat completions in a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_oss_server.stores.completions import Completion, StoredCompletion
from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.sizes import owner_completion_bytes


class SqlCompletions:
    def __init__(self, database: Database, owner: str = "") -> None:
        self._database = database
        self._owner = owner

    def of(self, owner: str) -> SqlCompletions:
        return SqlCompletions(self._database, owner)

    async def used_bytes(self) -> int:
        return await self._database.read(lambda tx: owner_completion_bytes(tx, self._owner))

    async def put(self, stored: StoredCompletion) -> None:
        key, body = key_of(stored.id), to_bytes(stored.completion)
        messages = to_bytes(stored.messages)
        row = (key, len(body) + len(messages), body, messages, self._owner)

        def work(tx: Transaction) -> None:
            delete_completion(tx, key)
            columns = "id, stored_at, size, body, messages, owner"
            tx.run(f"INSERT INTO completions ({columns}) VALUES (?, {{now}}, ?, ?, ?, ?)", *row)

        await self._database.write(work)

    async def get(self, completion_id: str) -> StoredCompletion | None:
        return await self._database.read(lambda tx: _get(tx, key_of(completion_id), self._owner))

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Completion] | None:
        return await self._database.read(lambda tx: _page(tx, self._owner, after, most, newest_first))

    async def set_metadata(self, completion_id: str, metadata: Mapping[str, Any]) -> StoredCompletion | None:
        key = key_of(completion_id)

        def work(tx: Transaction) -> StoredCompletion | None:
            tx.run("UPDATE completions SET size = size WHERE id = ?", key)  # other changes wait here
            if (kept := _get(tx, key, self._owner)) is None:
                return None
            changed = kept.with_metadata(metadata)
            tx.run("UPDATE completions SET body = ? WHERE id = ?", to_bytes(changed.completion), key)
            return changed

        return await self._database.write(work)

    async def delete(self, completion_id: str) -> bool:
        sql = "DELETE FROM completions WHERE id = ? AND owner = ?"
        return bool(await self._database.write(lambda tx: tx.run(sql, key_of(completion_id), self._owner)))


def delete_completion(tx: Transaction, key: str) -> bool:
    return bool(tx.run("DELETE FROM completions WHERE id = ?", key))


def _get(tx: Transaction, key: str, owner: str) -> StoredCompletion | None:
    rows = tx.rows("SELECT body, messages FROM completions WHERE id = ? AND owner = ?", key, owner)
    return StoredCompletion(from_bytes(rows[0][0]), tuple(from_bytes(rows[0][1]))) if rows else None


def _page(
    tx: Transaction, owner: str, after: str | None, most: int, newest_first: bool
) -> list[Completion] | None:
    order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
    where, values = "owner = ?", [owner]
    if after is not None:
        sql = "SELECT position FROM completions WHERE id = ? AND owner = ?"
        if not (rows := tx.rows(sql, key_of(after), owner)):
            return None
        where, values = f"owner = ? AND position {sign} ?", [owner, rows[0][0]]
    sql = f"SELECT body FROM completions WHERE {where} ORDER BY position {order} LIMIT ?"
    return [from_bytes(body) for [body] in tx.rows(sql, *values, most)]
