"""What the store needs of a database: transactions, in threads that never block the event loop.

Takes functions of a transaction. Runs each in one transaction and returns its result, or raises what the
function raised with nothing written. A function may run more than once, so it changes nothing but the
transaction. The statements are SQL that SQLite and Postgres share, with `?` for values; `{now}`, `{serial}`,
`{bytes}`, `{real}` and `{skip_locked}` stand for what they spell differently.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Value = str | bytes | int | float | list[str] | list[float] | None  # lists: in Postgres alone
Row = tuple[Any, ...]


def speller(spelling: Mapping[str, str]) -> Callable[[str], str]:
    """Spells shared statements for one database, each once."""

    @cache
    def spelt(sql: str) -> str:
        for mark, own in spelling.items():
            sql = sql.replace(mark, own)
        return sql

    return spelt


class Texts(Protocol):
    """Indexes of the words of passages, one for each vector store. All are named by numbers."""

    def create(self, store: int) -> None: ...

    def add(self, store: int, passages: Iterable[tuple[int, Sequence[str]]]) -> None: ...

    def remove(self, store: int, passages: Iterable[int]) -> None: ...

    def drop(self, store: int) -> None: ...

    def search(
        self, store: int, words: Sequence[str], among: str, values: Sequence[Value], most: int
    ) -> list[tuple[int, float]]:
        """The passages with any of the words and their scores, the best first. `among`: a query, or ""."""


class Transaction(Protocol):
    @property
    def texts(self) -> Texts: ...

    def rows(self, sql: str, *values: Value) -> list[Row]:
        """The rows of a query, or those that a statement returns."""

    def run(self, sql: str, *values: Value) -> int:
        """How many rows the statement changed."""

    def run_each(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None: ...


Work = Callable[[Transaction], T]


class Database(Protocol):
    @property
    def place(self) -> str:
        """Where the data is, for the operator; without passwords."""

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        """With `durable`, what was written survives even a power failure. Raises `StoreUnavailable`."""

    async def read(self, work: Work[T]) -> T:
        """Raises `StoreUnavailable`."""

    def write_now(self, work: Work[T]) -> T:
        """Blocks the thread: only before the event loop runs, and for commands."""

    def compact(self) -> None:
        """Returns unused space to the disk. It may take long, so only a command calls it."""

    async def close(self) -> None:
        """Finishes what was already requested."""
