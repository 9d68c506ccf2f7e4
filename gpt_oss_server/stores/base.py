"""The contract of a store of responses and conversations.

In: finished responses and conversations, with what later turns need of them. Out: the same by id, and each of
their items by its own, until they are deleted or the store's bounds let them go. A new store passes
`tests/contracts/store_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpt_oss_server.harmony.history import Segment

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A finished response and the conversation up to and including it."""

    response: dict[str, Any]
    input_items: tuple[Item, ...] = ()  # this request's own input, each with an id
    history: tuple[Segment, ...] = ()  # the whole conversation; segments are shared between turns
    conversation: str = ""  # what the tools' sessions are kept under: the id of its first response
    approvals: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # request id → (recipient, arguments)
    recipients: Mapping[str, str] = field(
        default_factory=dict
    )  # call_id → Harmony recipient, whole conversation
    results: Mapping[str, str] = field(
        default_factory=dict
    )  # item id → what the model read of a call made here

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.input_items, *self.response["output"])


@dataclass(frozen=True, slots=True)
class Part:
    """Items that came together, and the segments that they are in prompts."""

    items: tuple[Item, ...]
    history: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation that clients name by its id."""

    id: str
    created_at: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    approvals: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    recipients: Mapping[str, str] = field(default_factory=dict)

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for part in self.parts for item in part.items)

    @property
    def history(self) -> tuple[Segment, ...]:
        return tuple(segment for part in self.parts for segment in part.history)


class Store(Protocol):
    async def put(self, stored: StoredResponse) -> None: ...

    async def get(self, response_id: str) -> StoredResponse | None: ...

    async def delete(self, response_id: str) -> bool:
        """Whether there was something to delete."""
        ...

    async def item(self, item_id: str) -> Item | None:
        """An item of any response or conversation that is stored; of several with this id the newest."""
        ...

    async def result(self, item_id: str) -> str | None:
        """What the model read of a call that was made here, as far as its response is stored."""
        ...

    async def put_conversation(self, conversation: StoredConversation) -> None: ...

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None: ...

    async def change_conversation(
        self, conversation_id: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation | None:
        """What `change` makes of it, stored: no other change comes in between. None: there is none."""
        ...

    async def delete_conversation(self, conversation_id: str) -> bool: ...

    async def close(self) -> None: ...
