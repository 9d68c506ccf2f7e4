"""Which calls in a request's input have outputs, before any item is rendered.

Takes the items as the client sent them. Returns the places of outputs that a later one replaces, and of calls
that were cut off and so have none. A whole call without an output is refused, as by OpenAI's service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.content.pairing import unpaired
from gpt_oss_server.content.tools import recipient_of
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.items.conversation import answered_call
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import SEARCH

_SEARCH = recipient_of(SEARCH, None)
_UNFINISHED = ("incomplete", "in_progress")


@dataclass(frozen=True, slots=True)
class Answers:
    replaced: frozenset[int] = frozenset()  # places of outputs
    cut_off: frozenset[int] = frozenset()  # places of calls


def answers_of(kinds: Kinds, items: Sequence[Any], where: str) -> Answers:
    def client_calls(item: Any) -> list[list[str]]:
        ids = call_ids(item)
        known = kinds.items.get(item["type"]) if ids else None
        return [ids] if known and known.needs_output and isinstance(item.get("call_id"), str) else []

    found = unpaired(items, calls=client_calls, answers=answered_call_id)
    for place, (call_id,) in found.unanswered.items():
        if items[place].get("status") not in _UNFINISHED:
            raise no_output(call_id, f"{where}[{place}]")
    return Answers(found.replaced, frozenset(found.unanswered))


def answered_call_id(item: Any) -> str | None:
    if not isinstance(item, dict) or not str(item.get("type")).endswith("_call_output"):
        return None
    call_id = answered_call(item)
    return call_id if isinstance(call_id, str) else None


def call_ids(item: Any) -> list[str]:
    """The ids by which an output may name this call."""
    if not isinstance(item, dict) or not str(item.get("type")).endswith("_call"):
        return []
    return [item[key] for key in ("call_id", "id") if isinstance(item.get(key), str)]


def check_answered(
    recipients: Mapping[str, str], waiting: Sequence[Segment], answered: Mapping[str, set[str]]
) -> None:
    """Refuses a request that leaves a client's call of an earlier turn without an output.

    `recipients`: those of all earlier calls of clients, by id. `answered`: the ids that the input answers, by
    recipient. An approval answers a call of another kind, and a search for tools need not name its call.
    """
    left = Counter(call.recipient for call in waiting) if waiting else Counter[str | None]()
    for recipient in {recipient for recipient in recipients.values() if recipient in left} - {_SEARCH}:
        ids = answered.get(recipient, set())
        if len(ids) < left[recipient]:
            open_ids = [each for each, to in recipients.items() if to == recipient and each not in ids]
            named = [each for each in open_ids if each.startswith("call")]  # calls have two ids
            raise no_output((named or open_ids)[-1], "input")


def no_output(call_id: str, where: str) -> InvalidRequest:
    return InvalidRequest(
        f"No tool output found for function call {call_id}. Send its output after it, with the same call_id.",
        param=where,
    )
