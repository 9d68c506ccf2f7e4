"""Pages of lists of items, as stores return them: which one is wanted, and its items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]


class UnknownItem(Exception):
    """The list has no item with the id after which a page should begin."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page: at most this many items, after the one with this id or from the beginning of the list."""

    most: int
    after: str | None = None
    newest_first: bool = True

    def places(self, count: int, after: int | None, most: int) -> range:
        """The places of up to `most` items of `count`, after the one at place `after`; in their own order."""
        if self.newest_first:
            end = count if after is None else after
            return range(max(end - most, 0), end)
        first = 0 if after is None else after + 1
        return range(first, min(first + most, count))

    def ordered(self, items: Sequence[Item]) -> list[Item]:
        """Items in the order of the list, in that of the page."""
        return list(items)[::-1] if self.newest_first else list(items)

    def page(self, items: Sequence[Item]) -> ItemPage:
        """The page of `items`, which are one more than is wanted if there are more."""
        return ItemPage(tuple(items[: self.most]), has_more=len(items) > self.most)

    def of(self, items: Sequence[Item]) -> ItemPage:
        """The page of a list that is in memory."""
        after = None if self.after is None else find_place(items, self.after)
        some = items[as_slice(self.places(len(items), after, self.most + 1))]
        return self.page(self.ordered(some))


@dataclass(frozen=True, slots=True)
class ItemPage:
    items: tuple[Item, ...]
    has_more: bool


def as_slice(places: range) -> slice:
    return slice(places.start, places.stop)


def find_place(items: Sequence[Item], item_id: str) -> int:
    """Raises `UnknownItem`."""
    place = next((place for place, item in enumerate(items) if item.get("id") == item_id), None)
    if place is None:
        raise UnknownItem(item_id)
    return place
