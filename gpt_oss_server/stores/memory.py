"""Responses and conversations in memory, bounded by count, bytes and age; the oldest go first.

A conversation is as old as its last change.

What bytes there are is an estimate of all that the store keeps alive, histories of deleted parents included.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic_core import to_json

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import Item, StoredConversation, StoredResponse

_BYTES_PER_TOKEN = 40  # a tuple's slot and the int object it points to
_BYTES_PER_SEGMENT = 200  # the segment, its tuple and the count of its holders
_BYTES_PER_ITEM = 200  # the entry by which it is found

Kept = StoredResponse | StoredConversation
K = TypeVar("K", StoredResponse, StoredConversation)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[K]):
    kept: K
    size: int  # without its segments
    expires: float


class _Shelf(Generic[K]):
    """Things of one kind, the oldest first."""

    def __init__(self, most: int) -> None:
        self.entries: OrderedDict[str, _Entry[K]] = OrderedDict()
        self.most = most

    @property
    def oldest(self) -> _Entry[K] | None:
        return next(iter(self.entries.values()), None)


@dataclass(slots=True)
class _Held:
    """A segment that the store keeps alive; holding it keeps its `id()` its own."""

    segment: Segment
    size: int
    holders: int = 0


class _Segments:
    """The segments of all kept responses, each counted once for as long as any response has it.

    A response keeps its whole history alive, also when the responses that added to it are gone.
    """

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def hold(self, history: Iterable[Segment]) -> int:
        """How many bytes are kept alive that were not before."""
        added = 0
        for segment in history:
            held = self._held.get(id(segment))
            if held is None:
                held = self._held[id(segment)] = _Held(segment, _size_of_segment(segment))
                added += held.size
            held.holders += 1
        return added

    def release(self, history: Iterable[Segment]) -> int:
        """How many bytes are no longer kept alive."""
        freed = 0
        for segment in history:
            held = self._held[id(segment)]
            held.holders -= 1
            if not held.holders:
                freed += held.size
                del self._held[id(segment)]
        return freed

    def clear(self) -> None:
        self._held.clear()


def _size_of_segment(segment: Segment) -> int:
    tools = len(to_json(segment.tools)) if segment.tools else 0
    return _BYTES_PER_SEGMENT + _BYTES_PER_TOKEN * len(segment.tokens) + len(segment.text or "") + tools


def _size_of_rest(kept: Kept) -> int:
    """About how many bytes it keeps alive beside its segments."""
    pointers = 8 * len(kept.history) + 200 * len(kept.recipients) + _BYTES_PER_ITEM * len(kept.items)
    approvals = sum(200 + len(arguments) for _, arguments in kept.approvals.values())
    if isinstance(kept, StoredResponse):
        results = sum(100 + len(text) for text in kept.results.values())
        return len(to_json(kept.response)) + len(to_json(kept.input_items)) + pointers + approvals + results
    return len(to_json(kept.metadata)) + len(to_json(kept.items)) + pointers + approvals


def size_of(kept: Kept) -> int:
    """About how many bytes it keeps alive when nothing else shares its history."""
    segments = {id(segment): segment for segment in kept.history}
    return _size_of_rest(kept) + sum(map(_size_of_segment, segments.values()))


class MemoryStore:
    def __init__(
        self,
        *,
        max_responses: int = 10_000,
        max_conversations: int = 10_000,
        max_bytes: int = 512 * 2**20,
        max_age: float = 30 * 24 * 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._clock = clock
        self._responses = _Shelf[StoredResponse](max_responses)
        self._conversations = _Shelf[StoredConversation](max_conversations)
        self._owners: dict[str, list[Kept]] = {}  # by item id; the newest last
        self._segments = _Segments()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._responses.entries) + len(self._conversations.entries)

    @property
    def bytes(self) -> int:
        return self._bytes

    async def put(self, stored: StoredResponse) -> None:
        self._put(self._responses, stored)

    async def get(self, response_id: str) -> StoredResponse | None:
        return self._get(self._responses, response_id)

    async def delete(self, response_id: str) -> bool:
        self._evict()
        return self._drop(self._responses, response_id)

    async def item(self, item_id: str) -> Item | None:
        self._evict()
        owners = self._owners.get(item_id)
        return next(item for item in owners[-1].items if item.get("id") == item_id) if owners else None

    async def result(self, item_id: str) -> str | None:
        self._evict()
        for owner in reversed(self._owners.get(item_id, ())):
            if isinstance(owner, StoredResponse) and item_id in owner.results:
                return owner.results[item_id]
        return None

    async def put_conversation(self, conversation: StoredConversation) -> None:
        self._put(self._conversations, conversation)

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None:
        return self._get(self._conversations, conversation_id)

    async def change_conversation(
        self, conversation_id: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation | None:
        found = self._get(self._conversations, conversation_id)
        if found is None:
            return None
        changed = change(found)
        self._put(self._conversations, changed)
        return changed

    async def delete_conversation(self, conversation_id: str) -> bool:
        self._evict()
        return self._drop(self._conversations, conversation_id)

    async def close(self) -> None:
        for shelf in (self._responses, self._conversations):
            shelf.entries.clear()
        self._owners.clear()
        self._segments.clear()
        self._bytes = 0

    def _put(self, shelf: _Shelf[K], kept: K) -> None:
        added = self._segments.hold(kept.history)  # before the old one goes: most of them it shares
        self._drop(shelf, kept.id)
        entry = _Entry(kept, _size_of_rest(kept), self._clock() + self._max_age)
        shelf.entries[kept.id] = entry
        self._bytes += entry.size + added
        for item_id in _item_ids(kept):
            self._owners.setdefault(item_id, []).append(kept)
        self._evict()

    def _get(self, shelf: _Shelf[K], kept_id: str) -> K | None:
        self._evict()
        entry = shelf.entries.get(kept_id)
        return entry.kept if entry else None

    def _drop(self, shelf: _Shelf[K], kept_id: str) -> bool:
        entry = shelf.entries.pop(kept_id, None)
        if entry is None:
            return False
        self._bytes -= entry.size + self._segments.release(entry.kept.history)
        for item_id in _item_ids(entry.kept):
            owners = [owner for owner in self._owners[item_id] if owner is not entry.kept]
            if owners:
                self._owners[item_id] = owners
            else:
                del self._owners[item_id]
        return True

    def _evict(self) -> None:
        now = self._clock()
        self._trim(self._responses, now)
        self._trim(self._conversations, now)
        while self._bytes > self._max_bytes and len(self):
            response, conversation = self._responses.oldest, self._conversations.oldest
            if conversation is None or (response is not None and response.expires <= conversation.expires):
                assert response is not None
                self._drop(self._responses, response.kept.id)
            else:
                self._drop(self._conversations, conversation.kept.id)

    def _trim(self, shelf: _Shelf[K], now: float) -> None:
        while (oldest := shelf.oldest) is not None:
            if len(shelf.entries) <= shelf.most and oldest.expires > now:
                return
            self._drop(shelf, oldest.kept.id)


def _item_ids(kept: Kept) -> set[str]:
    return {item["id"] for item in kept.items if isinstance(item.get("id"), str)}
