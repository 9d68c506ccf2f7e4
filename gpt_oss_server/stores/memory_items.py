"""The items of the memory store by their ids.

Takes items, each with the id of its holder, a response or conversation, and with its owner. Returns an
owner's item as long as its holder is stored; if several items share an id, the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpt_oss_server.stores.base import Item


@dataclass(frozen=True, slots=True)
class _Found:
    holder: str
    owner: str
    item: Item
    result: str | None  # that the model read, if the item is a call made by this server


class Items:
    def __init__(self) -> None:
        self._found: dict[str, list[_Found]] = {}  # by item id; the newest last

    def add(
        self, holder: str, owner: str, items: Iterable[Item], results: Mapping[str, str] | None = None
    ) -> None:
        for item in items:
            item_id = item.get("id")
            if isinstance(item_id, str):
                found = _Found(holder, owner, item, (results or {}).get(item_id))
                self._found.setdefault(item_id, []).append(found)

    def remove(self, holder: str, items: Iterable[Item]) -> None:
        """Removes this holder's items that have the ids of `items`."""
        for item_id in {item["id"] for item in items if isinstance(item.get("id"), str)}:
            left = [found for found in self._found.get(item_id, ()) if found.holder != holder]
            if left:
                self._found[item_id] = left
            else:
                self._found.pop(item_id, None)

    def item(self, item_id: str, owner: str) -> Item | None:
        return next((found.item for found in self._newest_first(item_id, owner)), None)

    def result(self, item_id: str, owner: str) -> str | None:
        results = (found.result for found in self._newest_first(item_id, owner))
        return next((result for result in results if result is not None), None)

    def _newest_first(self, item_id: str, owner: str) -> Iterator[_Found]:
        return (found for found in reversed(self._found.get(item_id, ())) if found.owner == owner)

    def clear(self) -> None:
        self._found.clear()
