"""Files in a database; their bytes too, in pieces, or in a folder or a bucket.

Takes a name, a purpose and a stream of bytes. Returns the file's record, and its bytes from any place on,
until the file is deleted or expires. A file exists whole or not at all: what a stream that broke has left is
deleted. A file may be larger than memory; no call holds more than a piece of it.

    stored = await keep.files.create(NewFile(ids("file"), "out.jsonl", "batch_output", now), pieces())
    async for line in lines(keep.files.read(stored.id)): ...
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Protocol

from gpt_oss_server.errors import InvalidRequest, NoSuchFile, StoreUnavailable
from gpt_oss_server.stores.documents.rows import delete_entries
from gpt_oss_server.stores.files import FileLost, NewFile, NoRoom, StoredFile, Upload
from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Database, Transaction, Value
from gpt_oss_server.stores.sql.owned import LIVE, Owned
from gpt_oss_server.stores.sql.sizes import total

PIECE = 2**20  # bytes
MOST_WHOLE = 64 * 2**20  # bytes of a file that is read whole
_ARRIVING = 3600.0  # seconds without a piece after which what has arrived is deleted
_AT_ONCE = 20  # entries that one transaction deletes


class Content(Protocol):
    """Where the bytes of files are, each in pieces that are written in their order. Its methods block."""

    def append(self, name: str, start: int, piece: bytes) -> None: ...

    def read(self, name: str, start: int, most: int) -> bytes: ...

    def delete(self, name: str) -> None: ...

    def names(self) -> list[str]: ...


class Files(Owned):
    def __init__(self, database: Database, folder: Content | None = None, *, most: int | None = None) -> None:
        """`most`: the bytes of all files together."""
        super().__init__(database)
        self._folder = folder
        self._most = most
        self._looks_for_strays = folder is not None

    async def used_bytes(self) -> int:
        """What the owner's files have in bytes, with those that are arriving."""
        return await self.database.read(lambda tx: _used(tx, self._owner))

    async def create(
        self,
        new: NewFile,
        content: AsyncIterable[bytes],
        *,
        room: int | None = None,
        upload: str = "",
        described: Callable[[NewFile], NewFile] = lambda new: new,
    ) -> StoredFile:
        """Stores a file, or a part of the upload. Raises `NoRoom`, or what `content` raises.

        `room` is what the owner's files may have in bytes, this one included. `described` is called after the
        last byte: some requests name the purpose only then.
        """
        key = key_of(new.id)
        await self._begin(key, "begun", upload, new.purpose, _ARRIVING, b"")
        digest, size, number = hashlib.sha256(), 0, 0
        try:
            async for piece in _pieces(content):
                await asyncio.to_thread(digest.update, piece)
                await self._append(key, number, piece, room)
                size, number = size + len(piece), number + 1
            new = described(new)
        except BaseException:
            with suppress(StoreUnavailable):  # then the sweeper does it
                await asyncio.shield(self._delete([key]))
            raise
        fields = (new.id, new.filename, new.purpose, new.created_at, new.expires_at)
        stored = StoredFile(*fields, size, digest.hexdigest())
        kind = "part" if upload else "file"
        sql = (
            "UPDATE files SET kind = ?, purpose = ?, expires_at = {now} + ?, body = ?"
            " WHERE id = ? AND kind = 'begun'"
        )
        values = (kind, new.purpose, new.lasts, to_bytes(asdict(stored)), key)
        if not await self.database.write(lambda tx: tx.run(sql, *values), durable=True):
            raise FileLost(new.id)
        return stored

    async def _begin(self, key: str, *row: Value) -> None:
        columns = "id, owner, kind, upload, purpose, expires_at, body, size"
        sql = f"INSERT INTO files ({columns}) VALUES (?, ?, ?, ?, ?, {{now}} + ?, ?, 0)"
        await self.database.write(lambda tx: tx.run(sql, key, self._owner, *row))

    async def _append(self, key: str, number: int, piece: bytes, room: int | None) -> None:
        if self._folder is not None:
            await asyncio.to_thread(self._folder.append, key, number * PIECE, piece)

        def work(tx: Transaction) -> None:
            sql = "UPDATE files SET size = ?, expires_at = {now} + ? WHERE id = ? AND kind = 'begun'"
            if not tx.run(sql, number * PIECE + len(piece), _ARRIVING, key):
                raise FileLost(key)
            for most, owner in ((room, self._owner), (self._most, None)):
                if most is not None and _used(tx, owner) > most:
                    raise NoRoom(most, of_owner=owner is not None)
            if self._folder is None:
                tx.run("INSERT INTO pieces (file, number, body) VALUES (?, ?, ?)", key, number, piece)

        await self.database.write(work)

    async def get(self, file_id: str) -> StoredFile | None:
        which = ("body", "files", file_id, f"kind IN ('file', 'part') AND {LIVE}")
        return await self.database.read(lambda tx: self._find(tx, _stored, *which))

    async def read(self, file_id: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The bytes from place `start` on, in pieces of a megabyte at most. Raises `FileLost`."""
        if (stored := await self.get(file_id)) is None:
            raise FileLost(file_id)
        for number in range(start // PIECE, -(-stored.bytes // PIECE)):
            piece = await self._piece(key_of(file_id), number)
            if len(piece) != min(PIECE, stored.bytes - number * PIECE):
                raise FileLost(file_id)
            yield piece[max(start - number * PIECE, 0) :]

    async def find_readable(self, file_id: str, param: str) -> StoredFile:
        """A file that is not too large to be read whole. Raises a 404 or a 400."""
        if (stored := await self.get(file_id)) is None:
            raise NoSuchFile.at(param, f": there is no file {file_id!r:.100}. Upload it to /v1/files.")
        if stored.bytes > MOST_WHOLE:
            problem = f"`{param}`: the file has {stored.bytes:,} bytes, and {MOST_WHOLE:,} are read at most"
            raise InvalidRequest(f"{problem}. Split it.", param=param)
        return stored

    async def whole(self, file_id: str, param: str) -> tuple[str, bytes]:
        """The name and the bytes of a file."""
        stored = await self.find_readable(file_id, param)
        try:
            return stored.filename, b"".join([piece async for piece in self.read(file_id)])
        except FileLost as error:
            raise NoSuchFile.at(param, ": the file was deleted meanwhile.") from error

    async def left(self, file_id: str) -> bytes | None:
        """The bytes of a file that was found before; None: it was deleted meanwhile."""
        with suppress(NoSuchFile):
            return (await self.whole(file_id, "file_id"))[1]
        return None

    async def _piece(self, key: str, number: int) -> bytes:
        if self._folder is not None:
            return await asyncio.to_thread(self._folder.read, key, number * PIECE, PIECE)
        sql = "SELECT body FROM pieces WHERE file = ? AND number = ?"
        rows = await self.database.read(lambda tx: tx.rows(sql, key, number))
        return rows[0][0] if rows else b""

    async def page(
        self, after: str | None, most: int, *, newest_first: bool = True, purpose: str | None = None
    ) -> list[StoredFile] | None:
        """At most `most` files that follow the one with the id `after`; None: there is no such."""
        only = f"kind = 'file' AND purpose = COALESCE(?, purpose) AND {LIVE}"
        how: dict[str, Any] = {"newest_first": newest_first, "only": only, "values": (purpose,)}
        return await self._page(_stored, "body", "files", after, most, **how)

    async def delete(self, file_id: str) -> bool:
        """Returns whether the file existed."""
        sql = f"SELECT 1 FROM files WHERE id = ? AND owner = ? AND kind = 'file' AND {LIVE}"
        key = key_of(file_id)
        exists = await self.database.read(lambda tx: tx.rows(sql, key, self._owner))
        return bool(exists) and await self._delete([key]) > 0

    # --- uploads -----------------------------------------------------------------------------------

    async def begin_upload(self, upload: Upload) -> None:
        lasts = upload.expires_at - upload.created_at
        await self._begin(key_of(upload.id), "upload", "", upload.purpose, lasts, to_bytes(asdict(upload)))

    async def get_upload(self, upload_id: str) -> Upload | None:
        return await self.database.read(lambda tx: self._upload(tx, upload_id))

    def _upload(self, tx: Transaction, upload_id: str) -> Upload | None:
        which = ("body", "files", upload_id, f"kind = 'upload' AND {LIVE}")
        return self._find(tx, lambda _, body: Upload(**from_bytes(body)), *which)

    async def parts(self, upload_id: str) -> list[StoredFile]:
        sql = "SELECT body FROM files WHERE upload = ? AND owner = ? AND kind = 'part' ORDER BY position"
        key = key_of(upload_id)
        return await self.database.read(lambda tx: [_stored(tx, *r) for r in tx.rows(sql, key, self._owner)])

    async def end_upload(self, upload_id: str, status: str) -> Upload | None:
        """Ends a pending upload, and deletes its parts; None: there is no such."""

        def work(tx: Transaction) -> tuple[Upload, list[str]] | None:
            tx.run("UPDATE files SET size = size WHERE id = ?", key_of(upload_id))  # other ends wait here
            upload = self._upload(tx, upload_id)
            if upload is None or upload.status != "pending":
                return None
            ended = replace(upload, status=status)
            tx.run("UPDATE files SET body = ? WHERE id = ?", to_bytes(asdict(ended)), key_of(upload_id))
            rows = tx.rows("SELECT id FROM files WHERE upload = ?", key_of(upload_id))
            return ended, [key for [key] in rows]

        if (ended := await self.database.write(work)) is None:
            return None
        await self._delete(ended[1])
        return ended[0]

    # --- deletion ----------------------------------------------------------------------------------

    async def sweep(self) -> int:
        """Deletes what has expired or was left half-written, of all owners. Returns how many entries."""
        sql = "SELECT id FROM files WHERE expires_at <= {now} LIMIT ?"
        deleted = 0
        while keys := [key for [key] in await self.database.read(lambda tx: tx.rows(sql, _AT_ONCE))]:
            deleted += await self._delete(keys)
        if self._looks_for_strays and self._folder is not None:
            deleted += await self._delete_strays(self._folder)
            self._looks_for_strays = False
        return deleted

    async def _delete_strays(self, folder: Content) -> int:
        """Deletes the content of files whose deletion a crash interrupted; done once after each start."""

        def strays(tx: Transaction) -> list[str]:
            sql = "SELECT 1 FROM files WHERE id = ?"
            return [name for name in names if not tx.rows(sql, name)]

        names = await asyncio.to_thread(folder.names)
        for name in (found := await self.database.read(strays)):
            await asyncio.to_thread(folder.delete, name)
        return len(found)

    async def _delete(self, keys: Sequence[str]) -> int:
        def work(tx: Transaction) -> int:
            for key in keys:
                tx.run("DELETE FROM pieces WHERE file = ?", key)
                delete_entries(tx, "file = ?", key)  # it leaves all vector stores
            return sum(tx.run("DELETE FROM files WHERE id = ?", key) for key in keys)

        deleted = await self.database.write(work)
        if self._folder is not None:
            for key in keys:
                await asyncio.to_thread(self._folder.delete, key)
        return deleted


def _used(tx: Transaction, owner: str | None) -> int:
    where, values = ("", ()) if owner is None else (" WHERE owner = ?", (owner,))
    return total(tx, f"SELECT SUM(size) FROM files{where}", *values)


def _stored(tx: Transaction, body: bytes) -> StoredFile:
    return StoredFile(**from_bytes(body))


async def _pieces(content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `PIECE` bytes; the last may be shorter."""
    waiting = bytearray()
    async for part in content:
        waiting += part
        while len(waiting) >= PIECE:
            yield bytes(waiting[:PIECE])
            del waiting[:PIECE]
    if waiting:
        yield bytes(waiting)
