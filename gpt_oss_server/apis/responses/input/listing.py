"""Input items as the API lists them: in full, each with a unique id.

Takes items that have been read. Returns the same items with every field that the API lists. It must not know
what an item adds to a conversation.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpt_oss_server.apis.responses.input.reading import Item
from gpt_oss_server.http.validation import json_text
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.table import BY_ITEM_TYPE


def with_own_ids(items: Iterable[Item], taken: set[str], ids: Ids) -> list[Item]:
    """Makes ids unique: an item whose id is taken, as when a client sends it again, gets a new one.

    Otherwise paging would never end, since a page begins after its `after` item.
    """
    own: list[Item] = []
    for item in items:
        own.append(item if item["id"] not in taken else {**item, "id": ids(id_prefix(item["type"]))})
        taken.add(own[-1]["id"])
    return own


def id_prefix(kind: str) -> str:
    """The prefix of the ids of items of this type."""
    return _ID_PREFIXES.get(kind, "item")


def as_listed(item: Item) -> Item:
    return _listed_message(item) if item["type"] == "message" else _listed_call(item)


def _listed_call(item: Item) -> Item:
    """Adds the fields that the API always lists and clients may omit."""
    kind = item["type"]
    item = {**_ALWAYS_LISTED.get(kind, {}), **item}
    if kind.endswith(("_call", "_call_output")) or kind == "tool_search_output":
        item["status"] = item.get("status") or "completed"
    if kind in _WITH_JSON_TEXT and isinstance(item.get("arguments"), dict):
        item["arguments"] = json_text(item, "arguments", kind)
    if kind == "shell_call":
        item["action"] = {"timeout_ms": None, "max_output_length": None, **item["action"]}
    return item


def _listed_message(item: Item) -> Item:
    """The full form of a message, which clients may send in shorthand."""
    content = item["content"] if item["content"] is not None else []
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        part = {"type": kind, "text": content}
        content = [{**part, "annotations": [], "logprobs": []} if kind == "output_text" else part]
    return {**item, "content": content, "status": item.get("status") or "completed"}


_WITH_JSON_TEXT = ("function_call", "mcp_call", "mcp_approval_request")  # clients may send an object
_SEARCHED: Item = {"call_id": None, "execution": "client"}
_ALWAYS_LISTED: dict[str, Item] = {
    "tool_search_call": _SEARCHED,
    "tool_search_output": _SEARCHED,
    "additional_tools": {"role": "developer"},
    "shell_call": {"environment": None},
    "shell_call_output": {"max_output_length": None},
}

_ID_PREFIXES = {
    "message": "msg",
    "agent_message": "amsg",
    "image_generation_call": "ig",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
    "compaction": "cmp",
    **{kind: tool.id_prefix for kind, tool in BY_ITEM_TYPE.items()},
}
