"""The contract of a store of responses and conversations.

In: finished responses and conversations, each turn with what it adds to its history. Out: the same by id, the
history up to any of them, and each item by its own id, until they are deleted or the store's bounds evict
them. A new store passes `tests/contracts/store_contract.py`.

**Chains.** A turn is stored as its own segments and the position of its parent, so that writing it costs as
much as the turn is long, however long the history is. Turns with the same parent are branches and share all
that comes before. A turn without a parent begins a chain: its segments stand for everything before it. That
is the first turn, a turn that was compacted, and one that dropped the oldest turns to fit into the context.

**Deletion.** What a turn adds is counted by those that need it: its response or conversation, and each child.
It goes with the last of them. A deleted response is gone at once, with its items; the children that it had
continue as before, and no response's body outlives its deletion, as it would with a tombstone.

**Plain data.** All records hold only text, numbers, and dicts and lists of them, so that a database can store
them as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpt_oss_server.stores.chain import Addition, History, Position

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A finished response, and what its turn adds to the history that it continues."""

    response: dict[str, Any]
    input_items: tuple[Item, ...] = ()  # this request's own input, each with an id
    parent: Position | None = None  # None: `added` begins a chain
    added: Addition = field(default_factory=Addition)
    session: str = ""  # the key of the tools' sessions: the id of the chain's first response
    results: Mapping[str, str] = field(default_factory=dict)  # item id → what the model read of that call

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.input_items, *self.response["output"])


@dataclass(frozen=True, slots=True)
class Part:
    """Items of a conversation that came together, and what they add to its history."""

    items: tuple[Item, ...]
    added: Addition = field(default_factory=Addition)


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation that clients name by its id, without its parts."""

    id: str
    created_at: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0  # counts the changes


@dataclass(frozen=True, slots=True)
class Append:
    """Parts for the end of a conversation."""

    conversation_id: str
    parts: tuple[Part, ...]
    new_id: Callable[[Item], str]  # for an item whose id the conversation has already

    def unique(self, taken: Callable[[str], bool]) -> Iterator[Part]:
        """The parts with item ids that the conversation does not have yet, nor another of these items."""
        seen: set[str] = set()
        for part in self.parts:
            items: list[Item] = []
            for item in part.items:
                clashes = item["id"] in seen or taken(item["id"])
                items.append({**item, "id": self.new_id(item)} if clashes else item)
                seen.add(items[-1]["id"])
            yield Part(tuple(items), part.added)


class Store(Protocol):
    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        """Stores the response and appends its turn to a conversation: both, or neither where this raises.

        A response of the same id is replaced. Nothing is appended to a conversation that does not exist.
        Raises `UnknownParent` where the store does not hold the parent.
        """
        ...

    async def get(self, response_id: str) -> StoredResponse | None: ...

    async def history(self, response_id: str) -> History | None:
        """The history up to and including this response: the additions of its chain, read at once."""
        ...

    async def delete(self, response_id: str) -> bool:
        """Returns whether there was something to delete."""
        ...

    async def item(self, item_id: str) -> Item | None:
        """An item of any stored response or conversation; of several with this id the newest."""
        ...

    async def result(self, item_id: str) -> str | None:
        """What the model read of a call that was made here, while its response is stored."""
        ...

    async def put_conversation(self, conversation: StoredConversation, parts: Sequence[Part] = ()) -> None:
        """Stores a new conversation with its first parts."""
        ...

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None: ...

    async def conversation_items(self, conversation_id: str) -> tuple[Item, ...] | None: ...

    async def conversation_parts(self, conversation_id: str) -> tuple[Part, ...] | None: ...

    async def conversation_history(self, conversation_id: str) -> History | None:
        """The history up to the conversation's end; its position may be the parent of a response."""
        ...

    async def append(self, append: Append) -> tuple[Item, ...] | None:
        """Appends the parts and returns their items with the ids they got; None: no such conversation.

        Appends to one conversation take effect one after the other, and each as a whole.
        """
        ...

    async def set_metadata(
        self, conversation_id: str, metadata: Mapping[str, Any]
    ) -> StoredConversation | None:
        """The changed conversation; None: no such conversation."""
        ...

    async def rewrite_conversation(self, conversation_id: str, version: int, parts: Sequence[Part]) -> bool:
        """Replaces all parts, unless the conversation is gone or has another version by now.

        This costs as much as the conversation is long. It serves the deletion of an item, which is rare.
        """
        ...

    async def delete_conversation(self, conversation_id: str) -> bool: ...

    async def close(self) -> None: ...
