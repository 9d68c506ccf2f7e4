"""Which calls in a chat's messages have results, before any message is rendered.

Takes the messages as the client sent them. Returns the places of results that a later one replaces, and the
calls without a result by the place of their message. It must not know which calls need one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpt_oss_server.content.pairing import Unpaired, unpaired
from gpt_oss_server.json_values import dicts_of


def answers_of(messages: Sequence[Any]) -> Unpaired:
    found = unpaired(messages, calls=lambda each: [[call] for call in _calls(each)], answers=answered_by)
    named = {message["name"]: place for place, message in enumerate(messages) if _answers_by_name(message)}
    unanswered = dict[int, tuple[str, ...]]()
    for place, ids in found.unanswered.items():
        names = _calls(messages[place])
        if left := tuple(each for each in ids if named.get(names[each], -1) < place):
            unanswered[place] = left
    replaced = (place for place in found.replaced if messages[place].get("approve") is None)
    return Unpaired(frozenset(replaced), unanswered)


def answered_by(message: Any) -> str | None:
    """The id of the call that a message answers, if it names one."""
    call = message.get("tool_call_id") if _is_result(message) else None
    return call if isinstance(call, str) else None


def _answers_by_name(message: Any) -> bool:
    return _is_result(message) and answered_by(message) is None and isinstance(message.get("name"), str)


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _calls(message: Any) -> dict[str, str]:
    """The names of the called functions by the id of the call. A call that awaits approval is none."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return {}
    calls = [call for call in dicts_of(message.get("tool_calls")) if "mcp_approval_request" not in call]
    return {call["id"]: _name(call) for call in calls if isinstance(call.get("id"), str)}


def _name(call: Mapping[str, Any]) -> str:
    called = call.get("function") or call.get("custom")
    return str(called.get("name")) if isinstance(called, dict) else ""
