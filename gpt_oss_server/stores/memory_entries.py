"""What the memory store holds of a response and of a conversation, and how large that is.

Takes records. Returns pages of a conversation's items, and estimates of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic_core import to_json

from gpt_oss_server.stores.base import ConversationPart, StoredConversation, StoredResponse
from gpt_oss_server.stores.chain import Position
from gpt_oss_server.stores.memory_chains import size_of_addition
from gpt_oss_server.stores.pages import Item, ItemPage, UnknownItem, Wanted, slice_of

_BYTES_PER_ITEM = 200  # its entry in the index by id


@dataclass(slots=True)
class Response:
    stored: StoredResponse
    position: Position
    size: int  # without its link
    changed: float
    added: int = 0  # the size of its link

    @property
    def owner(self) -> str:
        return self.stored.owner


@dataclass(slots=True)
class Conversation:
    record: StoredConversation
    size: int  # without its links
    changed: float
    added: int = 0  # the size of its links
    parts: list[tuple[Item, ...]] = field(default_factory=list)  # one link each
    tip: Position | None = None  # the last part's link
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # part and place by item id

    @property
    def owner(self) -> str:
        return self.record.owner

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for part in self.parts for item in part)

    def page(self, wanted: Wanted) -> ItemPage:
        """Looks at no more parts than the page needs."""
        found: list[Item] = []
        step = -1 if wanted.newest_first else 1
        at, after = (len(self.parts) - 1 if wanted.newest_first else 0), None
        if wanted.after is not None:
            if wanted.after not in self.places:
                raise UnknownItem(wanted.after)
            at, after = self.places[wanted.after]
        while 0 <= at < len(self.parts) and len(found) <= wanted.most:
            part = self.parts[at]
            places = wanted.places(len(part), after, wanted.most + 1 - len(found))
            found += wanted.ordered(part[slice_of(places)])
            at, after = at + step, None
        return wanted.page(found)


def size_of(kept: StoredResponse | StoredConversation, parts: Sequence[ConversationPart] = ()) -> int:
    """An estimate of the bytes that it keeps alive, without its parent."""
    if isinstance(kept, StoredResponse):
        return size_of_response(kept) + size_of_addition(kept.added)
    sizes = (size_of_items(part.items) + size_of_addition(part.added) for part in parts)
    return size_of_metadata(kept) + sum(sizes)


def size_of_response(stored: StoredResponse) -> int:
    results = sum(100 + len(text) for text in stored.results.values())
    bodies = len(to_json(stored.response)) + len(to_json(stored.input_items))
    return bodies + _BYTES_PER_ITEM * len(stored.items) + results


def size_of_metadata(conversation: StoredConversation) -> int:
    return len(to_json(conversation.metadata))


def size_of_items(items: Sequence[Item]) -> int:
    return len(to_json(items)) + _BYTES_PER_ITEM * len(items)
