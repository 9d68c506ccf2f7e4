"""The pages of events and items: each type with its text, and its fields as the builders make them.

Takes the samples. Returns the pages, or fails if a type has no text or no sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from generate_pages.markdown import NOTE, code, json_block, table
from generate_pages.samples import Samples, samples
from gpt_oss_server.apis.responses.stream import EVENTS
from gpt_oss_server.items.builder import Item, ItemBuilder

EVENTS_HEAD = f"""{NOTE}
# Responses: events

With `stream: true` the server sends these events: over HTTP as server-sent events, whose `event:` is the
type, and over a WebSocket as one frame each. Every event has `type` and `sequence_number`, from 0 without
gaps. `output_index` is the item's place in the response's `output`. A field in parentheses is only in some
events of its type: log-probabilities, for example, if the request wants them. [Items](responses-items.md)
shows what `item` holds.

"""
ITEMS_HEAD = f"""{NOTE}
# Responses: output items

The entries of a response's `output`. A key in parentheses is only in some items of its type.

"""
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
_OF_ALL = ("type", "sequence_number")
_GROUPS = {
    "output_item": "Items",
    "content_part": "Parts of messages and reasoning",
    "output_text": "Messages",
    "reasoning": "Reasoning",
    "web_search": "Calls of the browser",
    "code_interpreter": "Runs of python",
    "mcp": "MCP servers",
    "function": "Calls that the client runs",
    "custom": "Calls that the client runs",
    "shell": "Shells",
    "compaction": "Compaction",
}


def events_page() -> str:
    found = samples()
    texts = event_texts(found)
    parts = [EVENTS_HEAD]
    groups: dict[str, list[str]] = {}
    for kind in texts:
        groups.setdefault(_group(kind), []).append(kind)
    for title, kinds in groups.items():
        rows = [(code(kind), texts[kind], _fields(found, kind)) for kind in kinds]
        parts.append(f"## {title}\n\n{table(('event', 'when', 'fields'), rows)}\n")
    return "".join(parts)


def items_page() -> str:
    parts = [ITEMS_HEAD]
    for kind, (about, items) in _items(samples()).items():
        keys = _described(items)
        parts.append(f"## `{kind}`\n\n{about}\n\n{keys}.\n\n{json_block(_fullest(items))}\n")
    return "".join(parts).rstrip() + "\n"


def event_texts(found: Samples) -> dict[str, str]:
    """Every event of the API with its text: those of no item first."""
    texts = dict(EVENTS)
    for builder, _ in found.items:
        texts |= builder.about_events
    return texts


def _group(kind: str) -> str:
    name = kind.removeprefix("response.")
    if kind in EVENTS and not name.startswith("output_item"):
        return "The response"
    return next(title for stem, title in _GROUPS.items() if name.startswith(stem))


def _fields(found: Samples, kind: str) -> str:
    made = [event for event in found.events if event["type"] == kind]
    return _described([{k: v for k, v in event.items() if k not in _OF_ALL} for event in made])


def _items(found: Samples) -> dict[str, tuple[str, list[Item]]]:
    grouped: dict[str, tuple[str, list[Item]]] = {}
    for builder, item in found.items:
        grouped.setdefault(item["type"], (_about(builder), []))[1].append(item)
    return grouped


def _about(builder: type[ItemBuilder]) -> str:
    assert builder.about, f"{builder.__name__} makes items and has no `about`"
    return builder.about


def _described(made: Iterable[dict[str, Any]]) -> str:
    """The keys of objects of one kind with their types; those that some lack are in parentheses."""
    objects = list(made)
    assert objects, "a described event or item that no sample makes"
    keys = dict.fromkeys(key for each in objects for key in each)
    shown = []
    for key in keys:
        kinds = dict.fromkeys(_kind(each[key]) for each in objects if key in each)
        text = f"`{key}` {' or '.join(kinds)}"
        shown.append(text if all(key in each for each in objects) else f"({text})")
    return ", ".join(shown)


def _kind(value: Any) -> str:
    return "null" if value is None else _NAMES[type(value)]


def _fullest(items: list[Item]) -> Item:
    return max(items, key=lambda item: len(str(item)))
