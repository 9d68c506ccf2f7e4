"""The contract of every store of files."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gpt_oss_server.stores import files as contract
from gpt_oss_server.stores.documents.files import Files
from gpt_oss_server.stores.documents.folder import FileFolder
from gpt_oss_server.stores.files import FileLost, LineTooLong, NewFile, NoRoom, Upload, lines
from gpt_oss_server.stores.sql.database import Database
from tests.doubles.waiting import until_found

MEGABYTE = 2**20
CONTENT = bytes(range(256)) * 10_000 + b"end"  # some pieces, and a rest


def new(number: int = 1, **fields: Any) -> NewFile:
    return replace(NewFile(f"file_{number}", "../a \x00 🙂.txt", "user_data", 1_000), **fields)


async def stream(content: bytes, by: int = 70_000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), by):
        yield content[at : at + by]


async def broken(content: bytes) -> AsyncIterator[bytes]:
    yield content
    raise ConnectionError


async def read(store: Files, file_id: str, start: int = 0) -> bytes:
    return b"".join([piece async for piece in store.read(file_id, start)])


async def ids(store: Files, after: str | None = None, most: int = 9, **wanted: Any) -> list[str] | None:
    found = await store.page(after, most, **wanted)
    return None if found is None else [file.id[5:] for file in found]


class FilesContract:
    database: Database
    folder: FileFolder | None = None

    def make(self, most: int | None = None) -> Files:
        return Files(self.database, self.folder, most=most)

    @pytest.fixture
    def store(self) -> Files:
        return self.make()

    async def test_a_file_is_kept_whole_until_it_is_deleted(self, store: Files) -> None:
        stored = await store.create(new(lasts=3_600), stream(CONTENT))
        assert stored.bytes == len(CONTENT) == await store.used_bytes()
        assert stored.sha256 == hashlib.sha256(CONTENT).hexdigest()
        assert stored.filename == "../a \x00 🙂.txt"
        assert stored.expires_at == 4_600
        assert await store.get("file_1") == stored
        assert await read(store, "file_1") == CONTENT
        for start in (1, MEGABYTE, MEGABYTE + 5, len(CONTENT) - 1, len(CONTENT)):
            assert await read(store, "file_1", start) == CONTENT[start:]
        assert await store.delete("file_1") is True
        assert await store.delete("file_1") is False
        assert await store.get("file_1") is None
        assert await store.used_bytes() == 0
        with pytest.raises(FileLost):
            await read(store, "file_1")

    async def test_an_empty_file_is_a_file(self, store: Files) -> None:
        assert (await store.create(new(), stream(b""))).bytes == 0
        assert await read(store, "file_1") == b""

    async def test_what_a_broken_stream_has_left_is_deleted(self, store: Files) -> None:
        with pytest.raises(ConnectionError):
            await store.create(new(), broken(CONTENT))
        assert await store.get("file_1") is None
        assert await store.used_bytes() == 0
        await store.create(new(), stream(b"again"))
        assert await read(store, "file_1") == b"again"

    async def test_a_file_is_no_file_before_its_last_byte(self, store: Files) -> None:
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield CONTENT
            await go_on.wait()

        writing = asyncio.create_task(store.create(new(), slow()))
        await until_found(store.used_bytes, lambda used: used > 0)
        assert await store.get("file_1") is None
        assert await ids(store) == []
        assert await store.delete("file_1") is False
        go_on.set()
        assert (await writing).bytes == len(CONTENT)

    async def test_the_record_may_be_completed_after_the_last_byte(self, store: Files) -> None:
        of_batch = partial(replace, purpose="batch", lasts=9_000)
        stored = await store.create(new(), stream(b"{}"), described=of_batch)
        assert (stored.purpose, stored.expires_at) == ("batch", 10_000)
        assert await ids(store, purpose="batch") == ["1"]

    async def test_pages_follow_each_other_in_both_orders(self, store: Files) -> None:
        for number in range(5):
            purpose = "batch" if number % 2 else "vision"
            await store.create(new(number, purpose=purpose), stream(b"x"))
        assert await ids(store) == ["4", "3", "2", "1", "0"]
        assert await ids(store, None, 2, newest_first=False) == ["0", "1"]
        assert await ids(store, "file_1", 2, newest_first=False) == ["2", "3"]
        assert await ids(store, "file_3", 2) == ["2", "1"]
        assert await ids(store, "file_3", 9, purpose="batch") == ["1"]
        assert await ids(store, "file_9") is None

    async def test_an_owner_finds_its_own_files_alone(self, store: Files) -> None:
        alice, bob = store.of("alice"), store.of("bob")
        await alice.create(new(1), stream(b"of alice"))
        await bob.create(new(2), stream(b"of bob"))
        assert (await ids(alice), await ids(bob), await ids(store)) == (["1"], ["2"], [])
        assert await bob.get("file_1") is None
        assert await bob.delete("file_1") is False
        assert await bob.page("file_1", 9) is None
        with pytest.raises(FileLost):
            await read(bob, "file_1")
        assert await read(alice, "file_1") == b"of alice"

    async def test_the_room_of_an_owner_and_that_of_all_are_bounded(self) -> None:
        store = self.make(3 * MEGABYTE)
        alice, bob = store.of("alice"), store.of("bob")
        await alice.create(new(1), stream(b"x" * MEGABYTE))
        with pytest.raises(NoRoom) as refused:
            await alice.create(new(2), stream(b"x" * MEGABYTE), room=2 * MEGABYTE - 1)
        assert refused.value.of_owner
        await alice.create(new(2), stream(b"x" * MEGABYTE), room=2 * MEGABYTE)
        with pytest.raises(NoRoom) as refused:
            await bob.create(new(3), stream(b"x" * (MEGABYTE + 1)))
        assert not refused.value.of_owner
        assert await bob.used_bytes() == 0

    async def test_the_parts_of_an_upload_are_no_files_and_go_with_it(self, store: Files) -> None:
        alice = store.of("alice")
        await alice.begin_upload(upload := Upload("upload_1", "a", "batch", 1_000, 4_600, 2))
        assert await alice.get_upload("upload_1") == upload
        assert await store.get_upload("upload_1") is None
        for number in (1, 2):
            part = new(number, lasts=3_600)
            await alice.create(part, stream(b"x"), upload="upload_1")
        assert [part.id for part in await alice.parts("upload_1")] == ["file_1", "file_2"]
        assert await ids(alice) == []
        assert await read(alice, "file_2") == b"x"
        assert await store.end_upload("upload_1", "completed") is None
        assert await alice.end_upload("upload_1", "completed") == replace(upload, status="completed")
        assert await alice.end_upload("upload_1", "cancelled") is None
        assert await alice.parts("upload_1") == []
        assert await alice.used_bytes() == 0

    async def test_what_has_expired_is_gone_before_it_is_swept(self, store: Files) -> None:
        await store.create(new(1, lasts=0), stream(CONTENT))
        await store.create(new(2), stream(b"x"))
        assert await store.get("file_1") is None
        assert await ids(store) == ["2"]
        assert await store.sweep() == 1
        assert await store.sweep() == 0
        assert await store.used_bytes() == 1

    async def test_lines_are_those_of_the_file_wherever_its_pieces_end(self, store: Files) -> None:
        wanted = [b"x" * length for length in (0, 3, MEGABYTE - 2, 1, 2 * MEGABYTE, 0, 7)]
        for end in (b"", b"\n", b"\r\n"):
            await store.create(new(), stream(b"\r\n".join(wanted) + end))
            assert [line async for line in lines(store.read("file_1"))] == wanted
            await store.delete("file_1")

    async def test_a_line_without_an_end_is_not_read_for_ever(
        self, store: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(contract, "LONGEST_LINE", MEGABYTE)
        await store.create(new(), stream(b"x" * 3 * MEGABYTE))
        with pytest.raises(LineTooLong):
            [line async for line in lines(store.read("file_1"))]
