"""Responses and conversations in memory, bounded by count, bytes and age; the oldest go first.

A conversation lives until it is deleted, unless its age is bounded; that counts from its last change. The
bytes are an estimate of everything that the store keeps alive: the turn of a deleted response counts as long
as a child needs it. Those of an owner are the sum of its responses and conversations.
"""

from __future__ import annotations

import copy
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from gpt_oss_server.stores.base import (
    Append,
    ConversationPart,
    Item,
    StoredConversation,
    StoredResponse,
    StoreSize,
)
from gpt_oss_server.stores.chain import History, Position, history_of
from gpt_oss_server.stores.memory_chains import Chains, size_of_addition
from gpt_oss_server.stores.memory_entries import (
    Conversation,
    Response,
    size_of_items,
    size_of_metadata,
    size_of_response,
)
from gpt_oss_server.stores.memory_items import Items
from gpt_oss_server.stores.pages import ItemPage, Wanted


@dataclass(slots=True)
class _Shared:
    """What the views of all owners share and change."""

    bytes: int = 0  # without links


K = TypeVar("K", Response, Conversation)


class _Shelf(Generic[K]):
    """Entries of one kind, the oldest first."""

    def __init__(self, most: int, max_age: float | None) -> None:
        self.entries: OrderedDict[str, K] = OrderedDict()
        self.most = most
        self.max_age = float("inf") if max_age is None else max_age

    @property
    def oldest(self) -> tuple[str, K] | None:
        return next(iter(self.entries.items()), None)


class MemoryStore:
    def __init__(
        self,
        *,
        max_responses: int = 10_000,
        max_conversations: int = 10_000,
        max_bytes: int = 512 * 2**20,
        max_age: float | None = 30 * 24 * 3600.0,
        max_conversation_age: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._responses = _Shelf[Response](max_responses, max_age)
        self._conversations = _Shelf[Conversation](max_conversations, max_conversation_age)
        self._items = Items()
        self._chains = Chains()
        self._of_owners: Counter[str] = Counter()  # bytes, links included
        self._shared = _Shared()
        self._owner = ""

    def of(self, owner: str) -> Self:
        seen = copy.copy(self)  # shares all but the owner
        seen._owner = owner
        return seen

    async def used_bytes(self) -> int:
        return self._of_owners[self._owner]

    def __len__(self) -> int:
        return len(self._responses.entries) + len(self._conversations.entries)

    @property
    def bytes(self) -> int:
        return self._shared.bytes + self._chains.bytes

    async def size(self) -> StoreSize:
        return StoreSize(len(self._responses.entries), len(self._conversations.entries), self.bytes)

    # --- responses ---------------------------------------------------------------------------------

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        stored = replace(stored, owner=self._owner)
        size, added = size_of_response(stored), size_of_addition(stored.added)
        parts = self._unique_parts(append)
        position = self._chains.add(stored.parent, stored.added)  # the last step that can raise
        self._drop_response(stored.id)
        self._responses.entries[stored.id] = Response(stored, position, size, self._clock(), added)
        self._count(self._owner, size, added)
        self._items.add(stored.id, self._owner, stored.items, stored.results)
        if append is not None and parts is not None:
            self._append(append.conversation_id, parts)
        self._evict()

    async def get(self, response_id: str) -> StoredResponse | None:
        kept = self._response(response_id)
        return kept.stored if kept else None

    async def input_page(self, response_id: str, wanted: Wanted) -> ItemPage | None:
        kept = self._response(response_id)
        return wanted.of(kept.stored.input_items) if kept else None

    async def history(self, response_id: str) -> History | None:
        kept = self._response(response_id)
        return self._history(kept.position, kept.stored.session) if kept else None

    async def history_at(self, position: Position | None, session: str) -> History:
        return self._history(position, session)

    async def delete(self, response_id: str) -> bool:
        return self._response(response_id) is not None and self._drop_response(response_id)

    async def item(self, item_id: str) -> Item | None:
        self._evict()
        return self._items.item(item_id, self._owner)

    async def result(self, item_id: str) -> str | None:
        self._evict()
        return self._items.result(item_id, self._owner)

    # --- conversations -----------------------------------------------------------------------------

    async def put_conversation(
        self, conversation: StoredConversation, parts: Sequence[ConversationPart] = ()
    ) -> None:
        self._drop_conversation(conversation.id)
        conversation = replace(conversation, owner=self._owner)
        kept = Conversation(conversation, size_of_metadata(conversation), self._clock())
        self._conversations.entries[conversation.id] = kept
        self._count(self._owner, kept.size)
        for part in parts:
            self._extend(kept, part)
        self._evict()

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None:
        kept = self._conversation(conversation_id)
        return kept.record if kept else None

    async def conversation_items(self, conversation_id: str) -> tuple[Item, ...] | None:
        kept = self._conversation(conversation_id)
        return kept.items if kept else None

    async def conversation_page(self, conversation_id: str, wanted: Wanted) -> ItemPage | None:
        kept = self._conversation(conversation_id)
        return kept.page(wanted) if kept else None

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item | None:
        kept = self._conversation(conversation_id)
        if kept is None or (found := kept.places.get(item_id)) is None:
            return None
        part, place = found
        return kept.parts[part][place]

    async def conversation_parts(self, conversation_id: str) -> tuple[ConversationPart, ...] | None:
        kept = self._conversation(conversation_id)
        if kept is None:
            return None
        return tuple(map(ConversationPart, kept.parts, self._chains.read(kept.tip)))

    async def conversation_history(self, conversation_id: str) -> History | None:
        kept = self._conversation(conversation_id)
        return self._history(kept.tip, conversation_id) if kept else None

    async def conversation_calls(self, conversation_id: str) -> History | None:
        kept = self._conversation(conversation_id)
        if kept is None:
            return None
        calls = [replace(added, segments=()) for added in self._chains.read(kept.tip)]
        return history_of(calls, session=conversation_id, position=kept.tip)

    async def append(self, append: Append) -> tuple[Item, ...] | None:
        self._evict()
        parts = self._unique_parts(append)
        if parts is None:
            return None
        self._append(append.conversation_id, parts)
        self._evict()
        return tuple(item for part in parts for item in part.items)

    async def set_metadata(
        self, conversation_id: str, metadata: Mapping[str, Any]
    ) -> StoredConversation | None:
        kept = self._conversation(conversation_id)
        if kept is None:
            return None
        before = size_of_metadata(kept.record)
        kept.record = replace(kept.record, metadata=metadata)
        self._resize(kept, size_of_metadata(kept.record) - before)
        self._touch(kept)
        self._evict()
        return kept.record

    async def rewrite_conversation(
        self, conversation_id: str, version: int, parts: Sequence[ConversationPart]
    ) -> bool:
        kept = self._conversation(conversation_id)
        if kept is None or kept.record.version != version:
            return False
        self._clear(kept)
        for part in parts:
            self._extend(kept, part)
        self._touch(kept)
        self._evict()
        return True

    async def delete_conversation(self, conversation_id: str) -> bool:
        found = self._conversation(conversation_id) is not None
        return found and self._drop_conversation(conversation_id)

    async def close(self) -> None:
        for shelf in (self._responses, self._conversations):
            shelf.entries.clear()
        self._items.clear()
        self._chains.clear()
        self._of_owners.clear()
        self._shared.bytes = 0

    def _history(self, position: Position | None, session: str) -> History:
        return history_of(self._chains.read(position), session=session, position=position)

    def _response(self, response_id: str) -> Response | None:
        self._evict()
        kept = self._responses.entries.get(response_id)
        return kept if kept is not None and kept.owner == self._owner else None

    def _conversation(self, conversation_id: str) -> Conversation | None:
        self._evict()
        return self._own_conversation(conversation_id)

    def _own_conversation(self, conversation_id: str) -> Conversation | None:
        kept = self._conversations.entries.get(conversation_id)
        return kept if kept is not None and kept.owner == self._owner else None

    def _unique_parts(self, append: Append | None) -> list[ConversationPart] | None:
        """The parts with unique item ids; None: no such conversation."""
        kept = self._own_conversation(append.conversation_id) if append else None
        return list(append.unique(kept.places.__contains__)) if append and kept else None

    def _append(self, conversation_id: str, parts: Sequence[ConversationPart]) -> None:
        kept = self._conversations.entries[conversation_id]
        for part in parts:
            self._extend(kept, part)
        self._touch(kept)

    def _extend(self, kept: Conversation, part: ConversationPart) -> None:
        before, kept.tip = kept.tip, self._chains.add(kept.tip, part.added)
        self._chains.release(before)  # the new link holds it now
        for place, item in enumerate(part.items):
            kept.places.setdefault(item["id"], (len(kept.parts), place))
        kept.parts.append(part.items)
        self._items.add(kept.record.id, kept.owner, part.items)
        self._resize(kept, size_of_items(part.items), size_of_addition(part.added))

    def _clear(self, kept: Conversation) -> None:
        self._items.remove(kept.record.id, kept.items)
        self._chains.release(kept.tip)
        kept.parts, kept.tip, kept.places = [], None, {}
        self._resize(kept, size_of_metadata(kept.record) - kept.size, -kept.added)

    def _resize(self, kept: Conversation, more: int, added: int = 0) -> None:
        kept.size += more
        kept.added += added
        self._count(kept.owner, more, added)

    def _count(self, owner: str, more: int, added: int = 0) -> None:
        self._shared.bytes += more
        self._of_owners[owner] += more + added
        if not self._of_owners[owner]:
            del self._of_owners[owner]

    def _touch(self, kept: Conversation) -> None:
        kept.record = replace(kept.record, version=kept.record.version + 1)
        kept.changed = self._clock()
        self._conversations.entries.move_to_end(kept.record.id)

    # --- deletion and eviction ---------------------------------------------------------------------

    def _drop_response(self, response_id: str) -> bool:
        kept = self._responses.entries.pop(response_id, None)
        if kept is None:
            return False
        self._count(kept.owner, -kept.size, -kept.added)
        self._items.remove(response_id, kept.stored.items)
        self._chains.release(kept.position)
        return True

    def _drop_conversation(self, conversation_id: str) -> bool:
        kept = self._conversations.entries.pop(conversation_id, None)
        if kept is None:
            return False
        self._clear(kept)
        self._count(kept.owner, -kept.size)
        return True

    def _evict(self) -> None:
        now = self._clock()
        self._trim(self._responses, self._drop_response, now)
        self._trim(self._conversations, self._drop_conversation, now)
        while self.bytes > self._max_bytes and len(self):
            response, conversation = self._responses.oldest, self._conversations.oldest
            if conversation is None or (
                response is not None and response[1].changed <= conversation[1].changed
            ):
                assert response is not None
                self._drop_response(response[0])
            else:
                self._drop_conversation(conversation[0])

    def _trim(self, shelf: _Shelf[K], drop: Callable[[str], bool], now: float) -> None:
        while (oldest := shelf.oldest) is not None:
            kept_id, kept = oldest
            if len(shelf.entries) <= shelf.most and kept.changed + shelf.max_age > now:
                return
            drop(kept_id)
