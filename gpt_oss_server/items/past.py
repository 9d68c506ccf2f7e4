"""Renders a call of an earlier turn and its result as the model saw them.

Takes the recipient, the arguments and the result. Returns two segments, on the channel in the tool's row.
"""

from __future__ import annotations

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.table import tool_of


def past_segments(renderer: Renderer, recipient: str, arguments: str, result: str) -> tuple[Segment, Segment]:
    tool = tool_of(recipient)
    channel = "commentary" if tool is None else tool.channel
    form = "code" if channel == "analysis" else "json"
    call = renderer.call(recipient, arguments, channel=channel, content_type=form)
    return call, renderer.tool_result(recipient, result, channel=channel)
