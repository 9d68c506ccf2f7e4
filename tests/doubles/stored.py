"""Records for stores: responses, conversations and their parts, each named by its own text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import (
    Append,
    ConversationPart,
    Responses,
    Store,
    StoredConversation,
    StoredResponse,
)
from gpt_oss_server.stores.chain import Addition, Position
from gpt_oss_server.stores.keep import Keep, Stores
from gpt_oss_server.stores.memory.events import MemoryEventLogs
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.sql.completions import SqlCompletions
from gpt_oss_server.stores.sql.sweeper import Bounds

T = TypeVar("T")


def segment(text: str, *, tokens: int = 3) -> Segment:
    return Segment("user", tuple(range(tokens)), text=text)


def stored(response_id: str, *, text: str = "", tokens: int = 3) -> StoredResponse:
    return StoredResponse(
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
) -> StoredResponse:
    """A response whose turn adds these segments, by default one with the response's id as its text."""
    added = Addition(tuple(segments) or (segment(response_id),), recipients or {}, approvals or {}, answered)
    response = {"id": response_id, "output": [], "store": True}
    return StoredResponse(response, parent=parent, added=added, session="session")


def item(item_id: str, text: str = "") -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"id": item_id, "type": "message", "role": "user", "content": content}


def conversation(conversation_id: str) -> StoredConversation:
    return StoredConversation(conversation_id, 1_000, {"topic": "demo"})


def part(*item_ids: str, tokens: int = 3) -> ConversationPart:
    return ConversationPart(
        tuple(map(item, item_ids)), Addition((segment(" ".join(item_ids), tokens=tokens),))
    )


def append(conversation_id: str, *parts: ConversationPart) -> Append:
    numbers = count(1)
    return Append(conversation_id, parts, lambda item: f"{item['id']}_again_{next(numbers)}")


def known(value: T | None) -> T:
    assert value is not None
    return value


async def put_turns(store: Responses, **parents: str | None) -> None:
    """Stores a turn of each name, as a child of the response that has the name of its parent."""
    for name, parent in parents.items():
        await store.put(turn(name, parent and await position(store, parent)))


async def texts(store: Responses, response_id: str) -> list[str | None]:
    return [segment.text for segment in known(await store.history(response_id)).segments]


async def position(store: Responses, response_id: str) -> Position | None:
    return known(await store.history(response_id)).position


async def ids(store: Store, conversation_id: str) -> list[str]:
    parts = known(await store.conversation_parts(conversation_id))
    return [item["id"] for part in parts for item in part.items]


def keep_around(store: Store) -> Keep:
    """A caller's view of this store of responses and conversations."""
    return Stores(store, MemoryEventLogs(), SqlCompletions(MemoryDatabase(Bounds()))).of("")


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
