"""The contract of a response store.

In: finished responses with what later turns need of them. Out: the same, by id, until they are deleted or the
store's bounds let them go. A new store passes `tests/contracts/store_contract.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpt_oss_server.harmony.history import Segment


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A finished response and the conversation up to and including it."""

    response: dict[str, Any]
    input_items: tuple[dict[str, Any], ...] = ()  # this request's own input, each with an id
    history: tuple[Segment, ...] = ()  # the whole conversation; segments are shared between turns
    own_segments: int = 0  # how many at the end of `history` this turn added
    conversation: str = ""  # what the tools' sessions are kept under: the id of its first response
    approvals: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # request id → (recipient, arguments)
    recipients: Mapping[str, str] = field(
        default_factory=dict
    )  # call_id → Harmony recipient, whole conversation

    @property
    def id(self) -> str:
        return str(self.response["id"])


class Store(Protocol):
    async def put(self, stored: StoredResponse) -> None: ...

    async def get(self, response_id: str) -> StoredResponse | None: ...

    async def delete(self, response_id: str) -> bool:
        """Whether there was something to delete."""
        ...

    async def close(self) -> None: ...
