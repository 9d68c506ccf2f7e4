"""Pages of lists of items, as stores return them: what is wanted, and what was found.

Takes and returns plain values. It must not know how a store holds items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]


class UnknownItem(Exception):
    """The list has no item with the id after which a page should begin."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page: so many items, after the one with this id or from the beginning of the list."""

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

    def page(self, found: Sequence[Item]) -> ItemPage:
        """The page of `found`, which has one item more than is wanted if there are more."""
        return ItemPage(tuple(found[: self.most]), has_more=len(found) > self.most)

    def of(self, items: Sequence[Item]) -> ItemPage:
        """The page of a list that is in memory."""
        after = None if self.after is None else place_of(items, self.after)
        some = items[slice_of(self.places(len(items), after, self.most + 1))]
        return self.page(self.ordered(some))


@dataclass(frozen=True, slots=True)
class ItemPage:
    items: tuple[Item, ...]
    has_more: bool


def slice_of(places: range) -> slice:
    return slice(places.start, places.stop)


def place_of(items: Sequence[Item], item_id: str) -> int:
    """Raises `UnknownItem`."""
    found = next((place for place, item in enumerate(items) if item.get("id") == item_id), None)
    if found is None:
        raise UnknownItem(item_id)
    return found
