"""The contract of a store of chat completions, and the one in memory.

Takes completions that clients asked to store, each with its messages. Returns them by id, and in the order in
which they were stored. A new store passes `tests/contracts/completions_contract.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

Completion = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    completion: Completion  # with its id and its metadata
    messages: tuple[dict[str, Any], ...] = ()  # the request's, each with an id

    @property
    def id(self) -> str:
        return str(self.completion["id"])

    def with_metadata(self, metadata: Mapping[str, Any]) -> StoredCompletion:
        return replace(self, completion={**self.completion, "metadata": dict(metadata)})


class Completions(Protocol):
    async def put(self, stored: StoredCompletion) -> None: ...

    async def get(self, completion_id: str) -> StoredCompletion | None: ...

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Completion] | None:
        """At most `most` completions that follow the one with the id `after`; None: there is no such."""
        ...

    async def set_metadata(
        self, completion_id: str, metadata: Mapping[str, Any]
    ) -> StoredCompletion | None: ...

    async def delete(self, completion_id: str) -> bool:
        """Returns whether the completion existed."""
        ...


class MemoryCompletions:
    """The oldest go first once there are too many."""

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._kept: OrderedDict[str, StoredCompletion] = OrderedDict()

    async def put(self, stored: StoredCompletion) -> None:
        self._kept.pop(stored.id, None)
        self._kept[stored.id] = stored
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    async def get(self, completion_id: str) -> StoredCompletion | None:
        return self._kept.get(completion_id)

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Completion] | None:
        ids = list(reversed(self._kept)) if newest_first else list(self._kept)
        if after is not None and after not in self._kept:
            return None
        start = 0 if after is None else ids.index(after) + 1
        return [self._kept[each].completion for each in ids[start : start + most]]

    async def set_metadata(self, completion_id: str, metadata: Mapping[str, Any]) -> StoredCompletion | None:
        if (kept := self._kept.get(completion_id)) is None:
            return None
        self._kept[completion_id] = kept.with_metadata(metadata)
        return self._kept[completion_id]

    async def delete(self, completion_id: str) -> bool:
        return self._kept.pop(completion_id, None) is not None
