"""Calls in a history that have no result, and the results that stand in for those that never come.

Takes segments. Returns the calls without a result, in order. It must not know which tools run where.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer

CUT_OFF = "This call was cut off before it was complete, so it was not made."
NOT_AWAITED = "The response ended before this call had a result."


def unanswered(segments: Iterable[Segment], renderer: Renderer) -> list[Segment]:
    """The calls that no later result answers. Harmony has no ids: a result names its tool, in order."""
    waiting: list[Segment] = []
    for segment in segments:
        if segment.role == "assistant" and segment.recipient is not None:
            waiting.append(segment)
        elif segment.role == "tool":
            place = next((at for at, call in enumerate(waiting) if _answers(segment, call, renderer)), None)
            if place is not None:
                del waiting[place]
    return waiting


def _answers(result: Segment, call: Segment, renderer: Renderer) -> bool:
    assert call.recipient is not None
    author = renderer.author_of_result(call.recipient)
    return result.tokens[1 : 1 + len(author)] == author
