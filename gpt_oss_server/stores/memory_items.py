"""The items of the memory store by their ids.

Takes items, each with the id of its owner, a response or conversation. Returns an item as long as its owner
is stored; if several items share an id, the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpt_oss_server.stores.base import Item


@dataclass(frozen=True, slots=True)
class _Found:
    owner: str
    item: Item
    result: str | None  # that the model read, if the item is a call made by this server


class Items:
    def __init__(self) -> None:
        self._found: dict[str, list[_Found]] = {}  # by item id; the newest last

    def add(self, owner: str, items: Iterable[Item], results: Mapping[str, str] | None = None) -> None:
        for item in items:
            item_id = item.get("id")
            if isinstance(item_id, str):
                found = _Found(owner, item, (results or {}).get(item_id))
                self._found.setdefault(item_id, []).append(found)

    def remove(self, owner: str, items: Iterable[Item]) -> None:
        """Removes this owner's items that have the ids of `items`."""
        for item_id in {item["id"] for item in items if isinstance(item.get("id"), str)}:
            left = [found for found in self._found.get(item_id, ()) if found.owner != owner]
            if left:
                self._found[item_id] = left
            else:
                self._found.pop(item_id, None)

    def item(self, item_id: str) -> Item | None:
        found = self._found.get(item_id)
        return found[-1].item if found else None

    def result(self, item_id: str) -> str | None:
        newest_first = reversed(self._found.get(item_id, ()))
        return next((found.result for found in newest_first if found.result is not None), None)

    def clear(self) -> None:
        self._found.clear()
