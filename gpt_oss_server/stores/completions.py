"""The contract of a store of chat completions, which `tests/contracts/completions_contract.py` checks."""

from __future__ import annotations

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
    """A store as it is opened belongs to the owner ""; see `stores/base`."""

    def of(self, owner: str) -> Completions:
        """The same store as this owner sees it."""

    async def used_bytes(self) -> int:
        """About how much the owner has stored."""

    async def put(self, stored: StoredCompletion) -> None: ...

    async def get(self, completion_id: str) -> StoredCompletion | None: ...

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Completion] | None:
        """At most `most` completions that follow the one with the id `after`; None: there is no such."""

    async def set_metadata(
        self, completion_id: str, metadata: Mapping[str, Any]
    ) -> StoredCompletion | None: ...

    async def delete(self, completion_id: str) -> bool:
        """Returns whether the completion existed."""
