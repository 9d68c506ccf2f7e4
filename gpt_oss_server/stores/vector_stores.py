"""The contract of vector stores, which `tests/contracts/vector_stores_contract.py` checks.

Takes files of the same owner, and the passages that were read from them. Returns the passages that a query's
words find, ranked by BM25 within the store; the text of each file; and files that no process reads yet. If a
process dies while it reads a file, another reads the file again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

Attributes = Mapping[str, str | float | bool]
STATUSES = ("in_progress", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class VectorStore:
    id: str
    name: str
    created_at: int
    last_active_at: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    description: str | None = None
    days: int | None = None  # without use, after which it is deleted; None: never
    counts: Mapping[str, int] = field(default_factory=dict)  # of its files, by status; set by the store
    bytes: int = 0  # of the files' texts; set by the store


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a vector store."""

    file_id: str
    filename: str
    created_at: int
    size: int  # tokens of a passage at most
    overlap: int  # tokens that a passage repeats of the one before
    is_auto: bool  # the client left both to the server
    attributes: Attributes = field(default_factory=dict)
    batch: str = ""
    error: tuple[str, str] | None = None  # code and message
    status: str = "in_progress"  # set by the store, as the next
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """A file that this process now reads."""

    position: int
    fence: int
    owner: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Passage:
    start: int  # in characters of the text
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    entry: Entry
    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on attributes: `kind` is a comparison, or `and`/`or` of `parts`."""

    kind: str
    key: str = ""
    values: Sequence[str | float | bool] = ()
    parts: Sequence["Filter"] = ()


class VectorStores(Protocol):
    def of(self, owner: str) -> Self:
        """The same stores as this owner sees them."""

    async def used_bytes(self) -> int: ...

    async def put(self, store: VectorStore) -> None:
        """Adds a store, or replaces its record. Its time without use begins again."""

    async def get(self, store_id: str) -> VectorStore | None: ...

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[VectorStore] | None:
        """At most `most` stores that follow the one with the id `after`; None: there is no such."""

    async def delete(self, store_id: str) -> bool: ...

    async def attach(self, store_id: str, entries: Sequence[Entry]) -> bool:
        """Adds files that are yet to be read, in place of earlier ones of their ids; False: no such store."""

    async def entry(self, store_id: str, file_id: str) -> Entry | None: ...

    async def entries(
        self,
        store_id: str,
        after: str | None,
        most: int,
        *,
        newest_first: bool,
        status: str | None,
        batch: str,
    ) -> list[Entry] | None: ...

    async def batch(self, store_id: str, batch_id: str) -> Mapping[str, int]:
        """The numbers of the batch's files by status; empty: there is no such batch."""

    async def cancel(self, store_id: str, batch_id: str) -> None:
        """Cancels the batch's files that are not read yet."""

    async def detach(self, store_id: str, file_id: str) -> bool: ...

    async def set_attributes(self, store_id: str, file_id: str, attributes: Attributes) -> bool: ...

    async def search(
        self, store_ids: Sequence[str], words: Sequence[str], most: int, filters: Filter | None = None
    ) -> list[Found]:
        """The best passages of all these stores; those that do not exist have none."""

    async def text(self, store_ids: Sequence[str], file_id: str) -> tuple[Entry, str] | None:
        """The whole text of a file that one of the stores has."""

    async def claim(self, seconds: float) -> Claimed | None:
        """A file, of any owner, that no process reads. What was read of it before is deleted."""

    async def add(self, claimed: Claimed, passages: Iterable[Passage], seconds: float) -> bool:
        """Adds passages and extends the claim; False: the file is no longer this process's to read."""

    async def finish(self, claimed: Claimed, error: tuple[str, str] | None = None) -> None: ...

    async def sweep(self) -> int:
        """Deletes what has expired, and what deleted stores have left. Returns how many."""
