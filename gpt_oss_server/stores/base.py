"""The contract of a store of responses and conversations, which `tests/contracts/store_contract.py` checks.

Takes finished responses and conversations, each turn with its addition to the history. Returns them by id,
the history up to any of them, and each item by its own id, until they are deleted or the bounds evict them.

**Chains.** A turn is stored as its own segments and the position of its parent, so the cost of a write
depends on the length of the turn, not of the history. Turns with the same parent are branches and share
everything before them. A turn without a parent begins a chain, and its segments stand for everything before
it: the first turn, a compacted turn, and a turn that dropped the oldest turns to fit into the context.

**Deletion.** A turn's addition counts its holders: the turn's response or conversation, and each child. It is
deleted with its last holder. A deleted response disappears immediately, with its items. Its children continue
as before, and its body does not outlive its deletion, as it would with a tombstone.

**Owners.** Every record belongs to an owner, a name. A store as it is opened belongs to the owner ""; `of`
returns the same store as another owner sees it: what it stores is that owner's, and it finds nothing else.

**Plain data.** All records hold only text, numbers, and dicts and lists of them, so that a database can store
them as bytes. A trace is bytes already.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from gpt_oss_server.stores import pages
from gpt_oss_server.stores.chain import Addition, History, Position
from gpt_oss_server.stores.pages import ItemPage, Wanted

Item = pages.Item


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A finished response, and its turn's addition to the history that it continues."""

    response: dict[str, Any]
    input_items: tuple[Item, ...] = ()  # this request's own input, each with an id
    parent: Position | None = None  # None: `added` begins a chain
    added: Addition = field(default_factory=Addition)
    session: str = ""  # the key of the tools' sessions: the id of the chain's first response
    results: Mapping[str, str] = field(default_factory=dict)  # item id → the call's result for the model
    trace: bytes = b""  # only a store that outlives the process keeps it; `get` leaves it out
    owner: str = ""  # set by the store

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.input_items, *self.response["output"])


@dataclass(frozen=True, slots=True)
class ConversationPart:
    """Items that were added to a conversation together, and their addition to its history."""

    items: tuple[Item, ...]
    added: Addition = field(default_factory=Addition)


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation that clients name by its id, without its parts."""

    id: str
    created_at: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0  # counts the changes
    owner: str = ""  # set by the store


@dataclass(frozen=True, slots=True)
class Append:
    """Parts for the end of a conversation."""

    conversation_id: str
    parts: tuple[ConversationPart, ...]
    new_id: Callable[[Item], str]  # for an item whose id is already taken

    def unique(self, taken: Callable[[str], bool]) -> Iterator[ConversationPart]:
        """The parts, with new ids for items whose ids the conversation or an earlier item already has."""
        seen: set[str] = set()
        for part in self.parts:
            items: list[Item] = []
            for item in part.items:
                clashes = item["id"] in seen or taken(item["id"])
                items.append({**item, "id": self.new_id(item)} if clashes else item)
                seen.add(items[-1]["id"])
            yield ConversationPart(tuple(items), part.added)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a store holds now."""

    responses: int
    conversations: int
    turns: int  # links: of responses, of conversations, and of deleted ones that children need
    running: int  # background runs
    logs: int  # of background runs that have ended
    bytes: int  # of all but the logs and the traces
    log_bytes: int
    traces: int
    trace_bytes: int
    oldest: float | None  # when the oldest response was stored


class _Owned(Protocol):
    def of(self, owner: str) -> Self:
        """The same store as this owner sees it."""


class Responses(_Owned, Protocol):
    async def used_bytes(self) -> int:
        """About how much the owner has stored."""

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        """Stores the response and appends its turn to a conversation: both, or neither where this raises.

        A response of the same id is replaced. Nothing is appended to a conversation that does not exist.
        Raises `UnknownParent` where the store does not hold the parent.
        """

    async def get(self, response_id: str) -> StoredResponse | None: ...

    async def input_page(self, response_id: str, wanted: Wanted) -> ItemPage | None:
        """A page of the response's input, read at the cost of the page; None: no such response.

        Raises `UnknownItem` where the input has no item with the id `wanted.after`.
        """

    async def history(self, response_id: str) -> History | None:
        """The history up to and including this response: the additions of its chain, in one read."""

    async def history_at(self, position: Position | None, session: str) -> History:
        """The history up to a position that something holds."""

    async def delete(self, response_id: str) -> bool:
        """Returns whether the response existed."""

    async def item(self, item_id: str) -> Item | None:
        """An item of any stored response or conversation; if several have this id, the newest."""

    async def result(self, item_id: str) -> str | None:
        """The result that the model read of a call made by this server, while its response is stored."""

    async def close(self) -> None: ...


class Conversations(_Owned, Protocol):
    async def put_conversation(
        self, conversation: StoredConversation, parts: Sequence[ConversationPart] = ()
    ) -> None:
        """Stores a new conversation with its first parts."""

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None: ...

    async def conversation_page(self, conversation_id: str, wanted: Wanted) -> ItemPage | None:
        """A page of the items, read at the cost of the page; None: no such conversation.

        Raises `UnknownItem` where the conversation has no item with the id `wanted.after`.
        """

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item | None: ...

    async def conversation_parts(self, conversation_id: str) -> tuple[ConversationPart, ...] | None:
        """All parts. The cost grows with the length of the conversation."""

    async def conversation_history(self, conversation_id: str) -> History | None:
        """The history up to the conversation's end; its position may be the parent of a response."""

    async def append(self, append: Append) -> tuple[Item, ...] | None:
        """Appends the parts and returns their items with their final ids; None: no such conversation.

        Appends to one conversation are atomic and take effect one after the other.
        """

    async def set_metadata(
        self, conversation_id: str, metadata: Mapping[str, Any]
    ) -> StoredConversation | None:
        """Returns the changed conversation; None: no such conversation."""

    async def rewrite_conversation(
        self, conversation_id: str, version: int, parts: Sequence[ConversationPart]
    ) -> bool:
        """Replaces all parts, unless the conversation no longer exists or has another version.

        The cost grows with the length of the conversation. Only the deletion of an item needs it, which is
        rare.
        """

    async def delete_conversation(self, conversation_id: str) -> bool: ...


class Store(Responses, Conversations, Protocol):
    """Both, so that a response and its part of a conversation are stored together."""
