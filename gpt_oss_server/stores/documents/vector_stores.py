"""Vector stores in a database, which `tests/contracts/vector_stores_contract.py` checks.

Takes files of the same owner, and the passages that were read from them. Returns the passages that a query's
words find, ranked by BM25 within the store; the text of each file; and files that no process reads yet. A
process holds each file that it reads by a lease: if it dies, another reads the file again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from gpt_oss_server.stores.documents.rows import (
    ENTRY,
    change_entry,
    delete_entries,
    delete_passages,
    delete_store,
    entry_of,
    set_attributes,
)
from gpt_oss_server.stores.documents.search import SearchedStores
from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Row, Transaction, Value
from gpt_oss_server.stores.sql.owned import LIVE
from gpt_oss_server.stores.sql.sizes import total
from gpt_oss_server.stores.vector_stores import Attributes, Claimed, Entry, Passage, VectorStore
from tools.words import words_in

_DAY = 86_400.0
_USE_SECONDS = 60
_MOST_CLAIMS = 5
# What a claim adds to the fence. One that is given back leaves 1 of it, so that no fence comes twice.
_CLAIM = 1_000
_AT_ONCE = 20  # entries that one transaction deletes
_DIED = ("server_error", "The server stopped each time that it read this file. Send the file in parts.")


class VectorStores(SearchedStores):
    async def used_bytes(self) -> int:
        sql = (
            "SELECT SUM(size) FROM entries"
            " JOIN vector_stores ON vector_stores.position = entries.store WHERE owner = ?"
        )
        return await self.database.read(lambda tx: total(tx, sql, self._owner))

    async def put(self, store: VectorStore) -> None:
        """Adds a store, or replaces its record. Its time without use begins again."""
        lasts = None if store.days is None else store.days * _DAY
        body = {**asdict(store), "counts": {}, "bytes": 0}

        def work(tx: Transaction) -> None:
            sql = "UPDATE vector_stores SET expires_at = {now} + ?, body = ? WHERE id = ? AND owner = ?"
            if not tx.run(sql, lasts, to_bytes(body), key_of(store.id), self._owner):
                sql = (
                    "INSERT INTO vector_stores (id, owner, expires_at, body)"
                    " VALUES (?, ?, {now} + ?, ?) RETURNING position"
                )
                [[position]] = tx.rows(sql, key_of(store.id), self._owner, lasts, to_bytes(body))
                tx.texts.create(position)

        await self.database.write(work, durable=True)

    async def used(self, store: VectorStore, now: int) -> None:
        """Begins the store's time without use again. It is written once a minute, and not at each search."""
        if now >= store.last_active_at + _USE_SECONDS:
            await self.put(replace(store, last_active_at=now))

    async def get(self, store_id: str) -> VectorStore | None:
        which = ("position, body", "vector_stores", store_id, LIVE)
        return await self.database.read(lambda tx: self._find(tx, _counted, *which))

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[VectorStore] | None:
        """At most `most` stores that follow the one with the id `after`; None: there is no such."""
        place = ("vector_stores", after, most)
        return await self._page(_counted, "position, body", *place, newest_first=newest_first, only=LIVE)

    async def delete(self, store_id: str) -> bool:
        return await self.database.write(lambda tx: delete_store(tx, self._position(tx, store_id)))

    # --- files ---------------------------------------------------------------------------------------

    async def attach(self, store_id: str, entries: Sequence[Entry]) -> bool:
        """Adds files that are yet to be read, in place of earlier ones of their ids; False: no such store."""

        def work(tx: Transaction) -> bool:
            if not (store := self._position(tx, store_id)):
                return False
            columns = "store, file, batch, status, size, passages, words, fence, lease_until, body"
            values = "(?, ?, ?, 'in_progress', 0, 0, 0, 0, 0, ?)"
            sql = f"INSERT INTO entries ({columns}) VALUES {values} RETURNING position"
            for entry in entries:
                delete_entries(tx, "store = ? AND file = ?", store, key_of(entry.file_id))
                row = (store, key_of(entry.file_id), entry.batch, to_bytes(asdict(entry)))
                [[position]] = tx.rows(sql, *row)
                set_attributes(tx, position, entry.attributes)
            return True

        return await self.database.write(work, durable=True)

    async def entry(self, store_id: str, file_id: str) -> Entry | None:
        found = await self._entries(store_id, "file = ?", key_of(file_id), most=1)
        return found[0] if found else None

    async def entries(
        self,
        store_id: str,
        after: str | None,
        most: int,
        *,
        newest_first: bool,
        status: str | None,
        batch: str,
    ) -> list[Entry] | None:
        order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
        where, values = "status = COALESCE(?, status) AND (batch = ? OR ? = '')", [status, batch, batch]
        if after is not None:
            if await self.entry(store_id, after) is None:
                return None
            last = "SELECT position FROM entries AS last WHERE last.store = entries.store AND file = ?"
            where += f" AND position {sign} ({last})"
            values.append(key_of(after))
        return await self._entries(store_id, where, *values, most=most, order=order)

    async def _entries(
        self, store_id: str, where: str, *values: Value, most: int, order: str = "ASC"
    ) -> list[Entry]:
        def work(tx: Transaction) -> list[Entry]:
            sql = f"SELECT {ENTRY} FROM entries WHERE store = ? AND {where} ORDER BY position {order} LIMIT ?"
            return [entry_of(*row) for row in tx.rows(sql, self._position(tx, store_id), *values, most)]

        return await self.database.read(work)

    def _file_rows(self, tx: Transaction, store_id: str, file_id: str) -> list[Row]:
        """The position and the columns `ENTRY` of a file, if the store has it."""
        sql = f"SELECT position, {ENTRY} FROM entries WHERE store = ? AND file = ?"
        return tx.rows(sql, self._position(tx, store_id), key_of(file_id))

    async def batch(self, store_id: str, batch_id: str) -> Mapping[str, int]:
        """The numbers of the batch's files by status; empty: there is no such batch."""

        def work(tx: Transaction) -> dict[str, int]:
            sql = "SELECT status, COUNT(*) FROM entries WHERE store = ? AND batch = ? GROUP BY status"
            return {status: int(n) for status, n in tx.rows(sql, self._position(tx, store_id), batch_id)}

        return await self.database.read(work)

    async def cancel(self, store_id: str, batch_id: str) -> None:
        """Cancels the batch's files that are not read yet."""
        waiting = "store = ? AND batch = ? AND status = 'in_progress'"
        sql = f"UPDATE entries SET status = 'cancelled' WHERE {waiting}"
        await self.database.write(lambda tx: tx.run(sql, self._position(tx, store_id), batch_id))

    async def detach(self, store_id: str, file_id: str) -> bool:
        def work(tx: Transaction) -> bool:
            named = (self._position(tx, store_id), key_of(file_id))
            return delete_entries(tx, "store = ? AND file = ?", *named) > 0

        return await self.database.write(work)

    async def set_attributes(self, store_id: str, file_id: str, attributes: Attributes) -> bool:
        def work(tx: Transaction) -> bool:
            rows = self._file_rows(tx, store_id, file_id)
            for position, *_ in rows:
                change_entry(tx, position, attributes=attributes)
                tx.run("DELETE FROM attributes WHERE entry = ?", position)
                set_attributes(tx, position, attributes)
            return bool(rows)

        return await self.database.write(work)

    async def text(self, store_ids: Sequence[str], file_id: str) -> tuple[Entry, str] | None:
        """The whole text of a file that one of the stores has."""

        def work(tx: Transaction) -> tuple[Entry, str] | None:
            for store_id in store_ids:
                for position, *row in self._file_rows(tx, store_id, file_id):
                    parts: list[str] = []
                    end = 0
                    sql = "SELECT start, body FROM passages WHERE entry = ? ORDER BY start"
                    for start, body in tx.rows(sql, position):
                        text = body.decode()
                        parts.append(text[end - start :])
                        end = start + len(text)
                    return entry_of(*row), "".join(parts)
            return None

        return await self.database.read(work)

    # --- reading -------------------------------------------------------------------------------------

    async def claim(self, seconds: float) -> Claimed | None:
        """A file, of any owner, that no process reads. What was read of it before is deleted.

        One whose process has died may be why: it comes after all others.
        """
        free = "status = 'in_progress' AND is_read = 0 AND lease_until <= {now}"
        if not await self.database.read(lambda tx: tx.rows(f"SELECT 1 FROM entries WHERE {free} LIMIT 1")):
            return None

        def work(tx: Transaction) -> Claimed | None:
            sql = f"SELECT position, store FROM entries WHERE {free}"
            which = (f"AND fence < {_CLAIM} ORDER BY position", "ORDER BY fence, position")
            found = (tx.rows(f"{sql} {first} LIMIT 1 {{skip_locked}}") for first in which)
            if not (rows := next(filter(None, found), None)):
                return None
            [[position, store]] = rows
            owners = tx.rows("SELECT owner FROM vector_stores WHERE position = ?", store)
            sql = (
                "UPDATE entries SET lease_until = {now} + ?, size = 0, passages = 0, words = 0,"
                f" fence = fence + {_CLAIM} WHERE position = ? RETURNING fence, {ENTRY}"
            )
            [[fence, *row]] = tx.rows(sql, seconds, position)
            delete_passages(tx, store, position)
            return Claimed(position, fence, owners[0][0] if owners else "", entry_of(*row))

        claimed = await self.database.write(work, durable=True)
        if claimed is not None and claimed.fence // _CLAIM > _MOST_CLAIMS:
            await self.finish(claimed, _DIED)
            return await self.claim(seconds)
        return claimed

    async def add(self, claimed: Claimed, passages: Iterable[Passage], seconds: float) -> bool:
        """Adds passages and extends the claim; False: the file is no longer this process's to read."""
        texts = await asyncio.to_thread(
            lambda: [(each.start, each.text.encode(), list(words_in(each.text))) for each in passages]
        )
        size, words = sum(len(text) for _, text, _ in texts), sum(len(words) for *_, words in texts)

        def work(tx: Transaction) -> bool:
            sql = (
                "UPDATE entries SET lease_until = {now} + ?, size = size + ?, passages = passages + ?,"
                " words = words + ? WHERE position = ? AND fence = ? AND status = 'in_progress'"
                " RETURNING store"
            )
            rows = tx.rows(sql, seconds, size, len(texts), words, claimed.position, claimed.fence)
            sql = "INSERT INTO passages (entry, start, body) VALUES (?, ?, ?) RETURNING position"
            for [store] in rows:
                places = [tx.rows(sql, claimed.position, start, text)[0][0] for start, text, _ in texts]
                tx.texts.add(
                    store, [(place, words) for place, (*_, words) in zip(places, texts, strict=True)]
                )
            return bool(rows)

        return await self.database.write(work)

    async def give_back(self, claimed: Claimed) -> None:
        """Lets another process read the file at once, as if this one had not tried."""
        sql = "UPDATE entries SET lease_until = 0, fence = ? WHERE position = ? AND fence = ?"
        values = (claimed.fence - _CLAIM + 1, claimed.position, claimed.fence)
        await self.database.write(lambda tx: tx.run(sql, *values))

    async def finish(self, claimed: Claimed, error: tuple[str, str] | None = None) -> None:
        """The file is completed or has failed; where the server has embeddings, it now waits for vectors."""
        held = "position = ? AND fence = ? AND status = 'in_progress'"
        sql = f"UPDATE entries SET is_read = 1, lease_until = 0, status = ? WHERE {held}"
        status = "completed" if self.embeddings is None else "in_progress"
        values = (status if error is None else "failed", claimed.position, claimed.fence)

        def work(tx: Transaction) -> None:
            if tx.run(sql, *values) and error is not None:
                change_entry(tx, claimed.position, error=error)

        await self.database.write(work, durable=True)

    async def sweep(self) -> int:
        """Deletes what has expired, and what deleted stores have left. Returns how many."""
        expired = "SELECT position FROM vector_stores WHERE expires_at <= {now} LIMIT ?"
        left = (
            "SELECT position FROM entries WHERE NOT EXISTS"
            " (SELECT 1 FROM vector_stores WHERE vector_stores.position = entries.store) LIMIT ?"
        )

        def work(tx: Transaction) -> int:
            stores = [delete_store(tx, position) for [position] in tx.rows(expired, _AT_ONCE)]
            keys = [position for [position] in tx.rows(left, _AT_ONCE)]
            return len(stores) + sum(delete_entries(tx, "position = ?", key) for key in keys)

        deleted = 0
        while await self.database.read(lambda tx: tx.rows(expired, 1) or tx.rows(left, 1)):
            deleted += await self.database.write(work)
        return deleted


def _counted(tx: Transaction, position: int, body: bytes) -> VectorStore:
    sql = "SELECT status, COUNT(*), SUM(size) FROM entries WHERE store = ? GROUP BY status"
    rows = tx.rows(sql, position)
    counts = {status: int(count) for status, count, _ in rows}
    return replace(VectorStore(**from_bytes(body)), counts=counts, bytes=int(sum(size for *_, size in rows)))
