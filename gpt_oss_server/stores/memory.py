"""Responses in memory, bounded by count, bytes and age; the oldest go first."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pydantic_core import to_json

from gpt_oss_server.stores.base import StoredResponse

_BYTES_PER_TOKEN = 40  # a tuple's slot and the int object it points to


@dataclass(frozen=True, slots=True)
class _Entry:
    stored: StoredResponse
    size: int
    expires: float


def size_of(stored: StoredResponse) -> int:
    """About how many bytes this response alone keeps alive; segments of earlier turns are counted there."""
    own = stored.history[len(stored.history) - stored.own_segments :]
    tokens = sum(len(segment.tokens) for segment in own)
    texts = sum(len(segment.text or "") for segment in own)
    pointers = 8 * len(stored.history) + 200 * len(stored.recipients)
    return (
        len(to_json(stored.response))
        + len(to_json(stored.input_items))
        + _BYTES_PER_TOKEN * tokens
        + texts
        + pointers
    )


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
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return self._bytes

    async def put(self, stored: StoredResponse) -> None:
        self._drop(stored.id)
        entry = _Entry(stored, size_of(stored), self._clock() + self._max_age)
        self._entries[stored.id] = entry
        self._bytes += entry.size
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
        self._bytes = 0

    def _drop(self, response_id: str) -> bool:
        entry = self._entries.pop(response_id, None)
        if entry:
            self._bytes -= entry.size
        return entry is not None

    def _evict(self) -> None:
        now = self._clock()
        while self._entries:
            oldest_id, oldest = next(iter(self._entries.items()))
            over = len(self._entries) > self._max_responses or self._bytes > self._max_bytes
            if not over and oldest.expires > now:
                return
            self._drop(oldest_id)
