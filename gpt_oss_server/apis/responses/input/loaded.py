"""Tools that a conversation's items load in addition to the request's own: by declaration or by a search.

Takes the history that the request continues, and its input. Returns the request's tools including the loaded
ones, and each item's tools by the item's place, so that they are parsed once. Tools at the head of a
conversation are declared there with the request's own; later ones are declared at their item, so that the
prompt before it does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt_oss_server.content.tools import Tool
from gpt_oss_server.harmony.history import Segment, since_compaction
from gpt_oss_server.items.listings import records_in
from gpt_oss_server.items.requested import RequestTools, loaded_tools, parse_tools

OF_ITEMS = frozenset({"additional_tools", "tool_search_output"})


def tools_of(
    tools: Sequence[Tool] | None, history: Sequence[Segment], given: Any, *, offered: bool
) -> RequestTools:
    read = parse_tools(tools or (), offered=offered)
    shown = {id(segment) for segment in since_compaction(history)}
    for segment in history:
        read.listings |= records_in(segment.tools)
        if segment.tools:
            at_head = not segment.tokens or id(segment) not in shown
            read.load(loaded_tools(segment.tools, "input"), at_head=at_head)
    for item, where, leads in _items(given, leads=not history):
        at_head = leads and item["type"] != "tool_search_output"
        read.of_items[where] = loaded_tools(item.get("tools"), f"{where}.tools")
        read.load(read.of_items[where], at_head=at_head)
    read.listings |= records_in(given if isinstance(given, list) else ())
    read.hide_deferred()
    return read


def stays_in_head(item: Any) -> bool:
    """Whether a conversation's head continues after this item."""
    if not isinstance(item, Mapping):
        return False
    return item.get("type") == "additional_tools" or item.get("role") in ("developer", "system")


def _items(given: Any, *, leads: bool) -> Iterator[tuple[Mapping[str, Any], str, bool]]:
    items = given if isinstance(given, list) else [given]
    for index, item in enumerate(items):
        if isinstance(item, Mapping) and isinstance(item.get("type"), str) and item["type"] in OF_ITEMS:
            yield item, f"input[{index}]", leads
        leads = leads and stays_in_head(item)
