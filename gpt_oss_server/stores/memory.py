"""Responses in memory, bounded by count, bytes and age; the oldest go first.

What bytes there are is an estimate of all that the store keeps alive, histories of deleted parents included.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic_core import to_json

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import StoredResponse

_BYTES_PER_TOKEN = 40  # a tuple's slot and the int object it points to
_BYTES_PER_SEGMENT = 200  # the segment, its tuple and the count of its holders


@dataclass(frozen=True, slots=True)
class _Entry:
    stored: StoredResponse
    size: int  # without its segments
    expires: float


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
    return _BYTES_PER_SEGMENT + _BYTES_PER_TOKEN * len(segment.tokens) + len(segment.text or "")


def _size_of_rest(stored: StoredResponse) -> int:
    """About how many bytes a response keeps alive beside its segments."""
    pointers = 8 * len(stored.history) + 200 * len(stored.recipients)
    approvals = sum(200 + len(arguments) for _, arguments in stored.approvals.values())
    return len(to_json(stored.response)) + len(to_json(stored.input_items)) + pointers + approvals


def size_of(stored: StoredResponse) -> int:
    """About how many bytes this response keeps alive when no other shares its history."""
    segments = {id(segment): segment for segment in stored.history}
    return _size_of_rest(stored) + sum(map(_size_of_segment, segments.values()))


class MemoryStore:
    def __init__(
        self,
        *,
        max_responses: int = 10_000,
        max_bytes: int = 512 * 2**20,
        max_age: float = 30 * 24 * 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._segments = _Segments()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return self._bytes

    async def put(self, stored: StoredResponse) -> None:
        self._drop(stored.id)
        entry = _Entry(stored, _size_of_rest(stored), self._clock() + self._max_age)
        self._entries[stored.id] = entry
        self._bytes += entry.size + self._segments.hold(stored.history)
        self._evict()

    async def get(self, response_id: str) -> StoredResponse | None:
        self._evict()
        entry = self._entries.get(response_id)
        return entry.stored if entry else None

    async def delete(self, response_id: str) -> bool:
        self._evict()
        return self._drop(response_id)

    async def close(self) -> None:
        self._entries.clear()
        self._segments.clear()
        self._bytes = 0

    def _drop(self, response_id: str) -> bool:
        entry = self._entries.pop(response_id, None)
        if entry:
            self._bytes -= entry.size + self._segments.release(entry.stored.history)
        return entry is not None

    def _evict(self) -> None:
        now = self._clock()
        while self._entries:
            oldest_id, oldest = next(iter(self._entries.items()))
            over = len(self._entries) > self._max_responses or self._bytes > self._max_bytes
            if not over and oldest.expires > now:
                return
            self._drop(oldest_id)
