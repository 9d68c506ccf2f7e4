"""Calls of hosted tools that clients send back in a chat's messages.

Takes an assistant message with `executed_tools`. Returns the calls and their results as segments. Like the
reasoning around them, they stay in the prompt until the model has answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.hosted import past_segments
from gpt_oss_server.items.table import Kinds


def ran_here(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ran = message.get("executed_tools")
    return [each for each in ran if isinstance(each, dict)] if isinstance(ran, list) else []


def executed_type(kinds: Kinds, recipient: str) -> str:
    """The `type` of a call in `executed_tools`."""
    tool = kinds.called(recipient)
    return tool.types[0] if tool is not None and tool.types else "mcp"


def segments_of(ran: Sequence[Mapping[str, Any]], renderer: Renderer, kinds: Kinds) -> Iterator[Segment]:
    """Skips entries that name no recipient: other servers use a field of this name too."""
    for each in ran:
        name, arguments, output = (each.get(key) for key in ("name", "arguments", "output"))
        if not (isinstance(name, str) and name and isinstance(arguments, str) and isinstance(output, str)):
            continue
        yield from past_segments(renderer, kinds.called(name), name, arguments, output)
