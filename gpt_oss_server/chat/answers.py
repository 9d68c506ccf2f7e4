"""Which calls in a chat's messages have results, before any message is rendered.

Takes the messages as the client sent them. Returns the places of results that a later one replaces, and the
calls without a result by the place of their message. It must not know which calls need one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answers:
    replaced: frozenset[int]  # places of tool messages
    unanswered: Mapping[int, tuple[str, ...]]  # place of the assistant's message → ids of its calls


def answers_of(messages: Sequence[Any]) -> Answers:
    """Reads from the end: a result belongs to the call before it, and an id may return in a later round."""
    replaced, unanswered = set[int](), dict[int, tuple[str, ...]]()
    answered, ever, names = set[str](), set[str](), set[str]()
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        role = message.get("role") if isinstance(message, dict) else None
        if role == "tool":
            call_id, name = message.get("tool_call_id"), message.get("name")
            if isinstance(name, str) and not isinstance(call_id, str):
                names.add(name)
            if isinstance(call_id, str):
                if call_id in answered and message.get("approve") is None:
                    replaced.add(place)
                answered.add(call_id)
                ever.add(call_id)
        elif role == "assistant":
            calls = _calls(message)
            answered -= calls.keys()
            left = tuple(each for each, name in calls.items() if each not in ever and name not in names)
            if left:
                unanswered[place] = left
    return Answers(frozenset(replaced), unanswered)


def _calls(message: Mapping[str, Any]) -> dict[str, str]:
    """The names of the called functions by the id of the call. A call that awaits approval is none."""
    given = message.get("tool_calls")
    calls = [call for call in given if isinstance(call, dict)] if isinstance(given, list) else []
    waiting = [call for call in calls if "mcp_approval_request" not in call]
    return {call["id"]: _name(call) for call in waiting if isinstance(call.get("id"), str)}


def _name(call: Mapping[str, Any]) -> str:
    called = call.get("function") or call.get("custom")
    return str(called.get("name")) if isinstance(called, dict) else ""
