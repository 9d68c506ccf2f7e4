"""The contract of a store of files, which `tests/contracts/files_contract.py` checks.

Takes a name, a purpose and a stream of bytes. Returns the file's record, and its bytes from any place on, as
pieces or as lines, until the file is deleted or expires. A file exists whole or not at all: what a stream
that broke has left is deleted. A file may be larger than memory; no call holds more than a piece of it.

    stored = await keep.files.create(NewFile(ids("file"), "out.jsonl", "batch_output", now), pieces())
    async for line in lines(keep.files.read(stored.id)): ...

`Keep.files` are those of one owner: it neither finds nor deletes another's. The name is a client's; it is
shown and never used as a path. `room` is what the owner's files may have in bytes, this one included.

An upload is a file that arrives in parts, each stored like a file of its own, until it is completed or ends.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, Self

LONGEST_LINE = 16 * 2**20  # bytes


class NoRoom(Exception):
    """The owner's files (`of_owner`), or those of all, have as many bytes as they may."""

    def __init__(self, most: int, *, of_owner: bool) -> None:
        super().__init__(most)
        self.most, self.of_owner = most, of_owner


class FileLost(Exception):
    """The file does not exist, or was deleted while it was read."""


class LineTooLong(Exception):
    """A line has more than `LONGEST_LINE` bytes."""


@dataclass(frozen=True, slots=True)
class NewFile:
    id: str  # the server's, of letters, digits, `_` and `-`
    filename: str
    purpose: str
    created_at: int
    lasts: int | None = None  # seconds; None: until it is deleted

    @property
    def expires_at(self) -> int | None:
        return None if self.lasts is None else self.created_at + self.lasts


@dataclass(frozen=True, slots=True)
class StoredFile:
    id: str
    filename: str
    purpose: str
    created_at: int
    expires_at: int | None
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is being uploaded in parts. `bytes` are those that the client announced."""

    id: str
    filename: str
    purpose: str
    created_at: int
    expires_at: int
    bytes: int
    file_lasts: int | None = None
    status: str = "pending"  # or completed, cancelled


class Files(Protocol):
    def of(self, owner: str) -> Self:
        """The same store as this owner sees it."""

    async def used_bytes(self) -> int:
        """What the owner's files have in bytes, with those that are arriving."""

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

        `described` is called after the last byte: some requests name the purpose only then.
        """

    async def get(self, file_id: str) -> StoredFile | None: ...

    def read(self, file_id: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The bytes from place `start` on, in pieces of a megabyte at most. Raises `FileLost`."""

    async def page(
        self, after: str | None, most: int, *, newest_first: bool = True, purpose: str | None = None
    ) -> list[StoredFile] | None:
        """At most `most` files that follow the one with the id `after`; None: there is no such."""

    async def delete(self, file_id: str) -> bool:
        """Returns whether the file existed."""

    async def begin_upload(self, upload: Upload) -> None: ...

    async def get_upload(self, upload_id: str) -> Upload | None: ...

    async def parts(self, upload_id: str) -> list[StoredFile]: ...

    async def end_upload(self, upload_id: str, status: str) -> Upload | None:
        """Ends a pending upload, and deletes its parts; None: there is no such."""

    async def sweep(self) -> int:
        """Deletes what has expired or was left half-written, of all owners. Returns how many entries."""


async def lines(content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends. Raises `LineTooLong`."""
    begun: list[bytes] = []
    size = 0
    async for piece in content:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join((*begun, line)).removesuffix(b"\r")
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > LONGEST_LINE:
            raise LineTooLong
    if size:
        yield b"".join(begun)
