"""Events that webhooks are told, in a database, until each address has taken them.

Takes the kind of an event and the id of its object. Returns what is due, which no other process gets for a
while. An event has one id, which follows from its kind and object, so that adding it again changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from gpt_oss_server.stores.sql.codec import to_bytes
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.owned import Owned

_COLUMNS = "id, url, owner, attempts, body"


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event for one address; "": the addresses of the owner are not known yet."""

    id: str
    url: str
    owner: str
    attempts: int  # this one included
    body: bytes


class Deliveries(Owned):
    def __init__(self, database: Database, *, enabled: bool) -> None:
        """Unless `enabled`, nobody is told anything, and nothing is stored."""
        super().__init__(database)
        self.enabled = enabled

    async def add(self, kind: str, object_id: str, now: int) -> None:
        """An event such as `response.completed`, to be told to the owner's addresses."""
        if not self.enabled:
            return
        event_id = f"evt_{hashlib.blake2b(f'{kind} {object_id}'.encode(), digest_size=16).hexdigest()}"
        event = {
            "id": event_id,
            "object": "event",
            "created_at": now,
            "type": kind,
            "data": {"id": object_id},
        }
        row = (event_id, "", self._owner, 0, to_bytes(event))
        await self.database.write(lambda tx: _insert(tx, [row]), durable=True)

    async def next(self, seconds: float) -> Delivery | None:
        """What is due; it is due again after these seconds, unless it is done by then."""
        due = "SELECT id, url FROM deliveries WHERE due_at <= {now} ORDER BY due_at LIMIT 1"

        def work(tx: Transaction) -> Delivery | None:
            if not (rows := tx.rows(f"{due} {{skip_locked}}")):
                return None
            sql = (
                "UPDATE deliveries SET due_at = {now} + ?, attempts = attempts + 1 WHERE id = ? AND url = ?"
                f" RETURNING {_COLUMNS}"
            )
            [row] = tx.rows(sql, seconds, *rows[0])
            return Delivery(*row)

        if not await self.database.read(lambda tx: tx.rows(due)):
            return None
        return await self.database.write(work)

    async def addressed(self, delivery: Delivery, urls: Iterable[str]) -> None:
        """Replaces the delivery by one to each address."""
        rows = [(delivery.id, url, delivery.owner, 0, delivery.body) for url in urls]

        def work(tx: Transaction) -> None:
            _insert(tx, rows)
            _delete(tx, delivery)

        await self.database.write(work)

    async def later(self, delivery: Delivery, seconds: float) -> None:
        sql = "UPDATE deliveries SET due_at = {now} + ? WHERE id = ? AND url = ?"
        await self.database.write(lambda tx: tx.run(sql, seconds, delivery.id, delivery.url))

    async def done(self, delivery: Delivery) -> None:
        await self.database.write(lambda tx: _delete(tx, delivery))


def _insert(tx: Transaction, rows: Iterable[tuple[str, str, str, int, bytes]]) -> None:
    sql = f"INSERT INTO deliveries ({_COLUMNS}, due_at) VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING"
    tx.run_each(sql, rows)


def _delete(tx: Transaction, delivery: Delivery) -> None:
    tx.run("DELETE FROM deliveries WHERE id = ? AND url = ?", delivery.id, delivery.url)
