"""Tools that a conversation's items load in addition to the request's own: by declaration or by a search.

Takes the history that the request continues, and its input. Returns the request's tools including the loaded
ones, and each item's tools by the item's place, so that they are parsed once. Tools at the head of a
conversation are declared there with the request's own; later ones are declared at their item, so that the
prompt before it does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt_oss_server.content.tools import RequestTools, Tool
from gpt_oss_server.harmony.history import Segment, since_compaction
from gpt_oss_server.items.kind import ItemType
from gpt_oss_server.items.mcp import records_in
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import hide_deferred


def tools_of(
    kinds: Kinds, tools: Sequence[Tool] | None, history: Sequence[Segment], given: Any, *, offered: bool
) -> RequestTools:
    read = kinds.read_tools(tools or (), offered=offered)
    shown = {id(segment) for segment in since_compaction(history)}
    for segment in history:
        read.listings |= records_in(segment.tools)
        if segment.tools:
            at_head = not segment.tokens or id(segment) not in shown
            read.load(kinds.read_loaded(segment.tools, "input"), at_head=at_head)
    for item, where, at_head in _loading(kinds, given, leads=not history):
        read.of_items[where] = kinds.read_loaded(item.get("tools"), f"{where}.tools")
        read.load(read.of_items[where], at_head=at_head)
    read.listings |= records_in(given if isinstance(given, list) else ())
    hide_deferred(read)
    return read


def stays_in_head(kinds: Kinds, item: Any) -> bool:
    """Whether a conversation's head continues after this item."""
    if not isinstance(item, Mapping):
        return False
    known = _type(kinds, item)
    return (known is not None and known.in_head) or item.get("role") in ("developer", "system")


def _loading(kinds: Kinds, given: Any, *, leads: bool) -> Iterator[tuple[Mapping[str, Any], str, bool]]:
    """The items that load tools, their places, and whether they belong to the conversation's head."""
    items = given if isinstance(given, list) else [given]
    for index, item in enumerate(items):
        known = _type(kinds, item) if isinstance(item, Mapping) else None
        if known is not None and known.loads_tools:
            yield item, f"input[{index}]", leads and known.in_head
        leads = leads and stays_in_head(kinds, item)


def _type(kinds: Kinds, item: Mapping[str, Any]) -> ItemType | None:
    kind = item.get("type")
    return kinds.items.get(kind) if isinstance(kind, str) else None
