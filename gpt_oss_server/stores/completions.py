"""The contract of a store of chat completions, and the one in memory.

Takes completions that clients asked to store, each with its messages. Returns them by id, and in the order in
which they were stored. A new store passes `tests/contracts/completions_contract.py`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from pydantic_core import to_json

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
    """A store as it is opened belongs to the owner ""; see `stores/base`."""

    def of(self, owner: str) -> Completions:
        """The same store as this owner sees it."""
        ...

    async def used_bytes(self) -> int:
        """About how much the owner has stored."""
        ...

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
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # of all owners
        self._owner = ""

    def of(self, owner: str) -> MemoryCompletions:
        seen = copy.copy(self)  # shares all but the owner
        seen._owner = owner
        return seen

    async def used_bytes(self) -> int:
        return sum(kept.size for kept in self._kept.values() if kept.owner == self._owner)

    async def put(self, stored: StoredCompletion) -> None:
        self._kept.pop(stored.id, None)
        self._kept[stored.id] = _Kept(self._owner, stored)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    async def get(self, completion_id: str) -> StoredCompletion | None:
        kept = self._own(completion_id)
        return None if kept is None else kept.stored

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Completion] | None:
        ids = [each for each, kept in self._kept.items() if kept.owner == self._owner]
        if newest_first:
            ids.reverse()
        if after is not None and self._own(after) is None:
            return None
        start = 0 if after is None else ids.index(after) + 1
        return [self._kept[each].stored.completion for each in ids[start : start + most]]

    async def set_metadata(self, completion_id: str, metadata: Mapping[str, Any]) -> StoredCompletion | None:
        if (kept := self._own(completion_id)) is None:
            return None
        kept.stored = kept.stored.with_metadata(metadata)
        return kept.stored

    async def delete(self, completion_id: str) -> bool:
        return self._own(completion_id) is not None and self._kept.pop(completion_id) is not None

    def _own(self, completion_id: str) -> _Kept | None:
        kept = self._kept.get(completion_id)
        return kept if kept is not None and kept.owner == self._owner else None


@dataclass
class _Kept:
    owner: str
    stored: StoredCompletion

    @cached_property
    def size(self) -> int:
        """Computed where it is asked for: only keys with a limit of what they store need it."""
        return len(to_json(self.stored.completion)) + len(to_json(self.stored.messages))
