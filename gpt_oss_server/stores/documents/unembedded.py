"""The files of vector stores whose passages have no vectors of the server's model yet, of all owners.

A process holds each file that it works on by a lease, as when it reads one. Returns passages, and takes their
vectors. A file that was just read is completed by them; one that was searched by words so far stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt_oss_server.stores.documents.rows import ENTRY, change_entry, entry_of
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.vector_stores import Claimed

if TYPE_CHECKING:
    from gpt_oss_server.embeddings import Vectors

_CHOSEN = "embeddings"
_HELD = "position = ? AND fence = ? AND status IN ('in_progress', 'completed')"


class Unembedded:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def choose(self, space: str) -> None:
        """From now on, servers of another model leave files that have vectors of this space as they are."""
        sql = "INSERT INTO secrets (name, secret) VALUES (?, ?)"
        sql += " ON CONFLICT (name) DO UPDATE SET secret = excluded.secret"
        await self._database.write(lambda tx: tx.run(sql, _CHOSEN, space.encode()))

    async def complete_all(self) -> None:
        """Completes the files that wait for vectors: this server makes none."""
        sql = "UPDATE entries SET status = 'completed' WHERE status = 'in_progress' AND is_read = 1"
        await self._database.write(lambda tx: tx.run(sql))

    async def claim(self, space: str, seconds: float) -> Claimed | None:
        """A file without vectors of this space; what it has of others is deleted."""
        free = (
            "SELECT position FROM entries WHERE (space < ? OR space > ?) AND lease_until <= {now}"
            " AND (status = 'completed' OR status = 'in_progress' AND is_read = 1)"
            " AND EXISTS (SELECT 1 FROM secrets WHERE name = ? AND secret = ?)"
            " ORDER BY status DESC, position LIMIT 1"
        )
        values = (space, space, _CHOSEN, space.encode())
        if not await self._database.read(lambda tx: tx.rows(free, *values)):
            return None

        def work(tx: Transaction) -> Claimed | None:
            if not (rows := tx.rows(f"{free} {{skip_locked}}", *values)):
                return None
            [[position]] = rows
            tx.run("DELETE FROM vectors WHERE entry = ?", position)
            sql = (
                "UPDATE entries SET lease_until = {now} + ?, fence = fence + 1, space = ''"
                f" WHERE position = ? RETURNING fence, {ENTRY}"
            )
            [[fence, *row]] = tx.rows(sql, seconds, position)
            return Claimed(position, fence, "", entry_of(*row))

        return await self._database.write(work)

    async def passages(self, claimed: Claimed, after: int, most: int) -> list[tuple[int, str]]:
        """The numbers and texts of those that follow the one of the number `after`."""
        sql = "SELECT position, body FROM passages WHERE entry = ? AND position > ? ORDER BY position LIMIT ?"
        rows = await self._database.read(lambda tx: tx.rows(sql, claimed.position, after, most))
        return [(int(position), body.decode()) for position, body in rows]

    async def hold(self, claimed: Claimed, seconds: float) -> bool:
        """Extends the claim; False: the file is no longer this process's."""
        sql = f"UPDATE entries SET lease_until = {{now}} + ? WHERE {_HELD}"
        held = (seconds, claimed.position, claimed.fence)
        return bool(await self._database.write(lambda tx: tx.run(sql, *held)))

    async def add(self, claimed: Claimed, space: str, places: Sequence[int], vectors: Vectors) -> None:
        from gpt_oss_server.stores.documents.vectors import packed

        block = packed(places, vectors)

        def work(tx: Transaction) -> None:
            sql = f"SELECT store FROM entries WHERE {_HELD}"
            for [store] in tx.rows(sql, claimed.position, claimed.fence):
                sql = "INSERT INTO vectors (store, entry, space, body) VALUES (?, ?, ?, ?)"
                tx.run(sql, store, claimed.position, space, block)

        await self._database.write(work)

    async def finish(self, claimed: Claimed, space: str) -> None:
        await self._end(claimed, None, ", space = ?, status = 'completed'", space)

    async def give_back(self, claimed: Claimed, error: tuple[str, str] | None = None) -> None:
        """Another process may try at once; until one succeeds, the file shows the error."""
        await self._end(claimed, error)

    async def _end(
        self, claimed: Claimed, error: tuple[str, str] | None, sets: str = "", *values: str
    ) -> None:
        def work(tx: Transaction) -> None:
            sql = f"UPDATE entries SET lease_until = 0{sets} WHERE {_HELD}"
            if tx.run(sql, *values, claimed.position, claimed.fence):
                change_entry(tx, claimed.position, error=error)

        await self._database.write(work, durable=True)
