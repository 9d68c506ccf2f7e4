"""Chat completions in a database, which `tests/contracts/completions_contract.py` checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.owned import Owned
from gpt_oss_server.stores.sql.sizes import total

Completion = dict[str, Any]
_STORED = ("body, messages", "completions")  # columns and table


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    completion: Completion  # with its id and its metadata
    messages: tuple[dict[str, Any], ...] = ()  # the request's, each with an id

    @property
    def id(self) -> str:
        return str(self.completion["id"])

    def with_metadata(self, metadata: Mapping[str, Any]) -> StoredCompletion:
        return replace(self, completion={**self.completion, "metadata": dict(metadata)})


class Completions(Owned):
    async def used_bytes(self) -> int:
        """About how much the owner has stored."""
        sql = "SELECT SUM(size) FROM completions WHERE owner = ?"
        return await self.database.read(lambda tx: total(tx, sql, self._owner))

    async def put(self, stored: StoredCompletion) -> None:
        key, body = key_of(stored.id), to_bytes(stored.completion)
        messages = to_bytes(stored.messages)
        row = (key, len(body) + len(messages), body, messages, self._owner)

        def work(tx: Transaction) -> None:
            tx.run("DELETE FROM completions WHERE id = ?", key)
            columns = "id, stored_at, size, body, messages, owner"
            tx.run(f"INSERT INTO completions ({columns}) VALUES (?, {{now}}, ?, ?, ?, ?)", *row)

        await self.database.write(work)

    async def get(self, completion_id: str) -> StoredCompletion | None:
        return await self.database.read(lambda tx: self._find(tx, _stored, *_STORED, completion_id))

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Completion] | None:
        """At most `most` completions that follow the one with the id `after`; None: there is no such."""
        place = ("completions", after, most)
        return await self._page(lambda _, body: from_bytes(body), "body", *place, newest_first=newest_first)

    async def set_metadata(self, completion_id: str, metadata: Mapping[str, Any]) -> StoredCompletion | None:
        key = key_of(completion_id)

        def work(tx: Transaction) -> StoredCompletion | None:
            tx.run("UPDATE completions SET size = size WHERE id = ?", key)  # other changes wait here
            if (kept := self._find(tx, _stored, *_STORED, completion_id)) is None:
                return None
            changed = kept.with_metadata(metadata)
            tx.run("UPDATE completions SET body = ? WHERE id = ?", to_bytes(changed.completion), key)
            return changed

        return await self.database.write(work)

    async def delete(self, completion_id: str) -> bool:
        """Returns whether the completion existed."""
        sql = "DELETE FROM completions WHERE id = ? AND owner = ?"
        return bool(await self.database.write(lambda tx: tx.run(sql, key_of(completion_id), self._owner)))


def _stored(tx: Transaction, body: bytes, messages: bytes) -> StoredCompletion:
    return StoredCompletion(from_bytes(body), tuple(from_bytes(messages)))
