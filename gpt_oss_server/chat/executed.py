"""Calls of tools that ran here, as they come back in a chat's messages.

In: the assistant's message with its `executed_tools`. Out: the calls and what was answered, as segments.
Like the reasoning around them they are shown to the model until an answer is given: within a turn it counts
on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer

_WHILE_IT_REASONS = frozenset({"browser", "python"})  # the model calls these on the analysis channel


def ran_here(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ran = message.get("executed_tools")
    return [each for each in ran if isinstance(each, dict)] if isinstance(ran, list) else []


def segments_of(ran: Sequence[Mapping[str, Any]], renderer: Renderer) -> Iterator[Segment]:
    """Other servers have a field of this name too; what does not say whom the model called is left out."""
    for each in ran:
        name, arguments, output = (each.get(key) for key in ("name", "arguments", "output"))
        if not (isinstance(name, str) and name and isinstance(arguments, str) and isinstance(output, str)):
            continue
        if name.partition(".")[0] in _WHILE_IT_REASONS:
            yield renderer.call(name, arguments, channel="analysis", content_type="code")
            yield renderer.tool_result(name, output, channel="analysis")
        else:
            yield renderer.call(name, arguments)
            yield renderer.tool_result(name, output)
