"""Records of files and of uploads, what their store (`documents/files`) may refuse, and the lines of a file.

The name of a file is a client's; it is shown and never used as a path. An upload is a file that arrives in
parts, each stored like a file of its own, until it is completed or ends.
"""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass

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
