"""Records for stores, each named by its own text, and counts of what a store reads and writes for them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores import base
from gpt_oss_server.stores.chain import Addition, Position
from gpt_oss_server.stores.memory.connection import ConnectionStore
from gpt_oss_server.stores.sql.database import Database, Row, Transaction, Value, Work

T = TypeVar("T")


def segment(text: str, *, tokens: int = 3) -> Segment:
    return Segment("user", tuple(range(tokens)), text=text)


def stored(response_id: str, *, text: str = "", tokens: int = 3) -> base.StoredResponse:
    return base.StoredResponse(
        response={"id": response_id, "object": "response", "output": [], "text": text},
        input_items=({"id": "msg_1", "type": "message", "role": "user", "content": []},),
        added=Addition((Segment("user", tuple(range(tokens))),), {"call_1": "functions.f"}),
        session="resp_1",
        results={"ws_1": "what the model read"},
    )


def turn(
    response_id: str,
    parent: Position | None,
    *,
    segments: Sequence[Segment] = (),
    recipients: dict[str, str] | None = None,
    approvals: dict[str, tuple[str, str]] | None = None,
    answered: tuple[str, ...] = (),
) -> base.StoredResponse:
    """A response whose turn adds these segments, by default one with the response's id as its text."""
    added = Addition(tuple(segments) or (segment(response_id),), recipients or {}, approvals or {}, answered)
    response = {"id": response_id, "output": [], "store": True}
    return base.StoredResponse(response, parent=parent, added=added, session="session")


def item(item_id: str, text: str = "") -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"id": item_id, "type": "message", "role": "user", "content": content}


def conversation(conversation_id: str) -> base.StoredConversation:
    return base.StoredConversation(conversation_id, 1_000, {"topic": "demo"})


def part(*item_ids: str, tokens: int = 3) -> base.ConversationPart:
    return base.ConversationPart(
        tuple(map(item, item_ids)), Addition((segment(" ".join(item_ids), tokens=tokens),))
    )


def append(conversation_id: str, *parts: base.ConversationPart) -> base.Append:
    numbers = count(1)
    return base.Append(conversation_id, parts, lambda item: f"{item['id']}_again_{next(numbers)}")


def known(value: T | None) -> T:
    assert value is not None
    return value


async def put_turns(store: base.Responses, **parents: str | None) -> None:
    """Stores a turn of each name, as a child of the response that has the name of its parent."""
    for name, parent in parents.items():
        await store.put(turn(name, parent and await position(store, parent)))


async def texts(store: base.Responses, response_id: str) -> list[str | None]:
    return [segment.text for segment in known(await store.history(response_id)).segments]


async def position(store: base.Responses, response_id: str) -> Position | None:
    return known(await store.history(response_id)).position


async def ids(store: base.Store, conversation_id: str) -> list[str]:
    parts = known(await store.conversation_parts(conversation_id))
    return [item["id"] for part in parts for item in part.items]


class Visited(tuple[int, ...]):
    """Tokens that count how often a store reads them."""

    visits = 0

    def __iter__(self) -> Iterator[int]:
        Visited.visits += 1
        return super().__iter__()

    def __len__(self) -> int:
        Visited.visits += 1
        return super().__len__()


def own_segment() -> Segment:
    return Segment("user", Visited(range(5)))


@dataclass
class Counted:
    reads: int = 0  # transactions
    writes: int = 0
    rows_read: int = 0
    rows: int = 0  # that statements wrote
    read: int = 0  # bytes
    written: int = 0


class _Transaction:
    def __init__(self, tx: Transaction, counted: Counted) -> None:
        self._tx = tx
        self._counted = counted

    def rows(self, sql: str, *values: Value) -> list[Row]:
        self._write(sql, values)
        rows = self._tx.rows(sql, *values)
        self._counted.rows_read += len(rows)
        self._counted.read += sum(map(_size, rows))
        return rows

    def run(self, sql: str, *values: Value) -> int:
        self._write(sql, values)
        return self._tx.run(sql, *values)

    def run_each(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        rows = list(rows)
        for row in rows:
            self._write(sql, row)
        self._tx.run_each(sql, rows)

    def _write(self, sql: str, values: Iterable[Value]) -> None:
        if not sql.startswith(("SELECT", "WITH")):
            self._counted.rows += 1
            self._counted.written += _size(values)


class _Database:
    def __init__(self, database: Database, counted: Counted) -> None:
        self._database = database
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, work: Work[Any], *, durable: bool = False) -> Any:
        self._counted.writes += 1
        return await self._database.write(lambda tx: work(_Transaction(tx, self._counted)), durable=durable)

    async def read(self, work: Work[Any]) -> Any:
        self._counted.reads += 1
        return await self._database.read(lambda tx: work(_Transaction(tx, self._counted)))


def counted(store: Any) -> Counted:
    """What a store in a database, or the one below a connection's, reads and writes from now on."""
    if isinstance(store, ConnectionStore):
        store = store._below
    counts = Counted()
    store.database = _Database(store.database, counts)
    return counts


def _size(values: Iterable[Value]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in values)
