"""Batches in a database: their objects, who works on them, and the answers to their lines.

Takes the API's objects. A batch is worked on by one process at a time, which holds it by a lease. What
another process writes after it has lost the batch changes nothing, so that each line has one answer. Answers
are kept until the batch ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.stores.events import LeaseLost
from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Transaction, Value
from gpt_oss_server.stores.sql.owned import Owned

_ENDED = frozenset({"failed", "completed", "expired", "cancelled"})
_AT_ONCE = 100  # answers of one read
_COLUMNS = "id, owner, status, is_open, fence, lease_until, body, caller"

Batch = dict[str, Any]


@dataclass(slots=True)
class HeldBatch:
    """A batch that this process works on."""

    key: str
    owner: str
    fence: int
    batch: Batch
    caller: dict[str, Any]
    answered: set[int]  # lines, also those that have been answered since


class Batches(Owned):
    async def add(self, batch: Batch, caller: Mapping[str, Any]) -> None:
        row = (key_of(batch["id"]), self._owner, batch["status"], to_bytes(batch), to_bytes(caller))
        sql = f"INSERT INTO batches ({_COLUMNS}) VALUES (?, ?, ?, 1, 0, 0, ?, ?)"
        await self.database.write(lambda tx: tx.run(sql, *row), durable=True)

    async def get(self, batch_id: str) -> Batch | None:
        return await self.database.read(lambda tx: self._find(tx, _read, "id, body", "batches", batch_id))

    async def page(self, after: str | None, most: int) -> list[Batch] | None:
        """At most `most` batches, newest first, that follow the one with the id `after`; None: no such."""
        return await self._page(_read, "id, body", "batches", after, most)

    async def cancel(self, batch_id: str, now: int) -> Batch | None:
        """Lets whoever works on the batch end it, if it has not ended; None: there is no such."""

        def work(tx: Transaction) -> Batch | None:
            sql = "UPDATE batches SET status = status WHERE id = ? AND owner = ? RETURNING body"
            for [body] in tx.rows(sql, key_of(batch_id), self._owner):
                batch: Batch = from_bytes(body)
                if batch["status"] not in ("cancelling", *_ENDED):
                    batch |= {"status": "cancelling", "cancelling_at": now}
                    _write(tx, key_of(batch_id), batch)
                return _shown(tx, key_of(batch_id), batch)
            return None

        return await self.database.write(work)

    async def delete(self, batch_id: str) -> bool:
        """Returns whether there was such a batch that has ended."""
        sql = "DELETE FROM batches WHERE id = ? AND owner = ? AND is_open = 0"
        key = key_of(batch_id)
        return bool(await self.database.write(lambda tx: tx.run(sql, key, self._owner), durable=True))

    # --- whoever works on a batch ------------------------------------------------------------------

    async def claim(self, lease: float) -> HeldBatch | None:
        """Takes a batch that nobody works on, whoever its owner is."""
        found = "SELECT id FROM batches WHERE is_open = 1 AND lease_until <= {now}"

        def work(tx: Transaction) -> HeldBatch | None:
            if not (rows := tx.rows(f"{found} ORDER BY position LIMIT 1 {{skip_locked}}")):
                return None
            sql = (
                "UPDATE batches SET fence = fence + 1, lease_until = {now} + ? WHERE id = ?"
                " RETURNING id, owner, fence, body, caller"
            )
            [[key, owner, fence, body, caller]] = tx.rows(sql, lease, rows[0][0])
            answered = tx.rows("SELECT number FROM batch_answers WHERE batch = ?", key)
            numbers = {number for [number] in answered}
            return HeldBatch(key, owner, fence, from_bytes(body), from_bytes(caller), numbers)

        if not await self.database.read(lambda tx: tx.rows(f"{found} LIMIT 1")):
            return None
        return await self.database.write(work)

    async def renew(self, held: HeldBatch, lease: float) -> str:
        """Returns the status, which another process may have changed. Raises `LeaseLost`."""

        def work(tx: Transaction) -> str:
            sql = "UPDATE batches SET lease_until = {now} + ? WHERE id = ? AND fence = ? RETURNING status"
            if not (rows := tx.rows(sql, lease, held.key, held.fence)):
                raise LeaseLost(held.key)
            return str(rows[0][0])

        return await self.database.write(work)

    async def change(self, held: HeldBatch, **fields: Any) -> None:
        """Changes the object; one that has ended keeps no answers. Raises `LeaseLost`."""

        def work(tx: Transaction) -> Batch:
            _check(tx, held)
            [[body]] = tx.rows("SELECT body FROM batches WHERE id = ?", held.key)
            batch: Batch = from_bytes(body)
            status = fields.get("status", batch["status"])
            if batch["status"] == "cancelling" and status not in _ENDED:
                status = "cancelling"  # that a client wishes so is not forgotten
            batch |= {**fields, "status": status}
            if status in _ENDED:
                batch = _counted(tx, held.key, batch)
                tx.run("DELETE FROM batch_answers WHERE batch = ?", held.key)
            _write(tx, held.key, batch)
            return batch

        held.batch = await self.database.write(work, durable=True)

    async def answer(self, held: HeldBatch, number: int, succeeded: bool, answer: bytes) -> None:
        """Keeps the answer to a line, unless it has one. Raises `LeaseLost`."""
        sql = (
            "INSERT INTO batch_answers (batch, number, succeeded, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (batch, number) DO NOTHING"
        )

        def work(tx: Transaction) -> None:
            _check(tx, held)
            tx.run(sql, held.key, number, int(succeeded), answer)

        await self.database.write(work)
        held.answered.add(number)

    async def answers(self, held: HeldBatch, after: int) -> list[tuple[int, bool, bytes]]:
        """Some answers to the lines after number `after`, in their order; none: there are no more."""
        sql = (
            "SELECT number, succeeded, body FROM batch_answers WHERE batch = ? AND number > ?"
            " ORDER BY number LIMIT ?"
        )
        rows = await self.database.read(lambda tx: tx.rows(sql, held.key, after, _AT_ONCE))
        return [(number, bool(succeeded), bytes(body)) for number, succeeded, body in rows]

    async def give_back(self, held: HeldBatch) -> None:
        """Lets another process work on the batch at once."""
        sql = "UPDATE batches SET lease_until = 0 WHERE id = ? AND fence = ?"
        await self.database.write(lambda tx: tx.run(sql, held.key, held.fence))


def _check(tx: Transaction, held: HeldBatch) -> None:
    """Raises `LeaseLost` where another process holds the batch now, and lets none claim it until the end."""
    if not tx.run("UPDATE batches SET fence = fence WHERE id = ? AND fence = ?", held.key, held.fence):
        raise LeaseLost(held.key)


def _write(tx: Transaction, key: str, batch: Batch) -> None:
    values: list[Value] = [batch["status"], int(batch["status"] not in _ENDED), to_bytes(batch), key]
    tx.run("UPDATE batches SET status = ?, is_open = ?, body = ? WHERE id = ?", *values)
    if batch["status"] in _ENDED:  # its age counts from here
        tx.run("UPDATE batches SET lease_until = {now} WHERE id = ?", key)


def _read(tx: Transaction, key: str, body: bytes) -> Batch:
    return _shown(tx, key, from_bytes(body))


def _shown(tx: Transaction, key: str, batch: Batch) -> Batch:
    return batch if batch["status"] in _ENDED else _counted(tx, key, batch)


def _counted(tx: Transaction, key: str, batch: Batch) -> Batch:
    """The object with the counts of its answers so far."""
    sql = "SELECT succeeded, COUNT(*) FROM batch_answers WHERE batch = ? GROUP BY succeeded"
    counts: dict[int, int] = dict(tx.rows(sql, key))
    counted = {"completed": counts.get(1, 0), "failed": counts.get(0, 0)}
    return {**batch, "request_counts": {**batch["request_counts"], **counted}}
