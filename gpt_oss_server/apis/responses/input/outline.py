"""Items without their texts: what other items need to know of them, at a cost that does not depend on length.

Takes an item that was read before. Returns one that means the same for calls, outputs, approvals and phases,
and whose segments say nothing. It is for reading a long conversation of which one part is rendered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt_oss_server.apis.responses.input.reading import Item
from gpt_oss_server.items.table import BY_ITEM_TYPE

_NO_MESSAGE: Item = {"type": "message", "role": "user", "content": ""}
_NO_REASONING: Item = {"type": "reasoning"}
_NO_CALL: Item = {"type": "image_generation_call"}  # a call that needs nothing and that nothing needs


def outline_of(item: Item) -> Item:
    outline = _OUTLINES.get(item["type"])
    return item if outline is None else outline(item)


def _with(**fields: Any) -> Callable[[Item], Item]:
    return lambda item: {**item, **fields}


def _instead(placeholder: Item) -> Callable[[Item], Item]:
    return lambda item: {**placeholder, "id": item.get("id")}


_OUTLINES: dict[str, Callable[[Item], Item]] = {
    "message": _with(content=""),
    "agent_message": _with(content=""),
    "reasoning": _instead(_NO_REASONING),
    "compaction": _instead(_NO_MESSAGE),
    "compaction_summary": _instead(_NO_MESSAGE),
    "context_compaction": _instead(_NO_MESSAGE),
    "function_call": _with(arguments="{}"),
    "function_call_output": _with(output=""),
    "custom_tool_call": _with(input=""),
    "custom_tool_call_output": _with(output=""),
    "local_shell_call": _with(action={}),
    "local_shell_call_output": _with(output=""),
    "shell_call": _with(action={}),
    "shell_call_output": _with(output=""),
    "apply_patch_call": _with(operation={}),
    "apply_patch_call_output": _with(output=""),
    "tool_search_call": _with(arguments="{}"),
    "tool_search_output": _instead(_NO_MESSAGE),
    "additional_tools": _instead(_NO_MESSAGE),
    "mcp_list_tools": _instead(_NO_MESSAGE),
    "mcp_call": _with(arguments=None, output="", error=None),
    **dict.fromkeys(BY_ITEM_TYPE, _instead(_NO_CALL)),
}
