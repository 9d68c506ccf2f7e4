"""Responses and conversations in memory, bounded by count, bytes and age; the oldest go first."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpt_oss_server.stores.memory.database import MemoryDatabase
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds


class MemoryStore(SqlStore):
    """A conversation lives until it is deleted, unless its age is bounded; that counts from its last change.

    The bytes are those of all records: a deleted response's turn counts as long as a child needs it.
    """

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
        bounds = Bounds(max_responses, max_conversations, max_bytes, max_age, max_conversation_age)
        super().__init__(MemoryDatabase(bounds, clock))
