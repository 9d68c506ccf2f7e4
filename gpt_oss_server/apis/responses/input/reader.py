"""Reads input items into Harmony messages, each as its kind's row says.

Takes the request's `input` (text, one item, or a list of them) and the recipients of earlier calls. Returns
the segments that the items add to the conversation, the items as they are listed later, each with an id, and
the recipients of their calls. Content that a text model cannot read becomes a note in the prompt. An item
that would silently change the conversation is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpt_oss_server.apis.responses.input.answers import Answers, answered_call_id, answers_of, call_ids
from gpt_oss_server.apis.responses.input.loaded import stays_in_head
from gpt_oss_server.content.pairing import in_order_of_calls
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.validation import json_type
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.stores.sealing import Sealer


def read_input(
    given: str | Item | list[Any] | None,
    kinds: Kinds,
    renderer: Renderer,
    ids: Ids,
    *,
    recipients: Mapping[str, str],
    approvals: Mapping[str, tuple[str, str]],
    sealer: Sealer,
    results: Mapping[str, str] | None = None,
    servers: Mapping[str, tuple[str, str]] | None = None,
    tools: Mapping[str, RequestTools] | None = None,
    where: str = "input",
    leads: bool = False,
    is_whole: bool = True,
) -> Conversation:
    """`servers`: the tools of MCP servers by recipient. `leads`: these items begin the conversation.

    `tools`: the tools of items whose tools have been parsed already, by the item's place. `is_whole`: no
    outputs of the calls follow later, so each call must have one.
    """
    conversation = Conversation(
        renderer,
        ids,
        sealer,
        kinds.read_loaded,
        recipients=dict(recipients),
        approvals=dict(approvals),
        results=results or {},
        servers=servers or {},
        leads=leads,
        tools=tools or {},
    )
    items = _as_list(given)
    answers = answers_of(kinds, items, where) if is_whole else Answers()
    at, listed, before_call = "", dict[int, Item](), _before_calls(items)
    for index, item in in_order_of_calls(items, calls=call_ids, answers=answered_call_id, past=recipients):
        if conversation.compacts:
            raise InvalidRequest(f"`{at}`: a compaction_trigger must be the last item.", param=at)
        if index in answers.replaced:
            continue
        at = f"{where}[{index}]"
        conversation.before_call = before_call[index]
        if read := _read_item(kinds, item, at, conversation):
            listed[index] = read
        if index in answers.cut_off:
            conversation.close_cut_call(item)
        conversation.sources += [index] * (len(conversation.segments) - len(conversation.sources))
    conversation.items = with_own_ids(kinds, [listed[index] for index in sorted(listed)], set(), ids)
    return conversation


def _as_list(given: str | Item | list[Any] | None) -> list[Any]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [given] if isinstance(given, dict) else given or []


def _before_calls(items: Sequence[Any]) -> list[bool]:
    """For each item, whether the assistant still makes a call after it, so that it is no final answer."""
    flags, call_follows = [], False
    for item in reversed(items):
        flags.append(call_follows)
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and (kind.endswith("_call") or kind == "mcp_approval_request"):
            call_follows = True
        elif kind != "reasoning" and not (kind in (None, "message") and _is_assistants(item)):
            call_follows = False
    return flags[::-1]


def _is_assistants(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "assistant"


def _read_item(kinds: Kinds, item: Any, where: str, conversation: Conversation) -> Item | None:
    """The item as it is listed later; None for a trigger."""
    if isinstance(item, str):  # some clients send a list of plain strings
        item = {"type": "message", "role": "user", "content": item}
    if not isinstance(item, dict):
        raise InvalidRequest(f"`{where}` must be an item object, but is {json_type(item)}.", param=where)
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind is None:
        raise InvalidRequest(
            f"`{where}` has neither `type` nor `role`; a message is {{'role': 'user', 'content': '…'}}.",
            param=f"{where}.type",
        )
    for key in ("id", "status", "phase", "namespace"):
        if item.get(key) is not None and not isinstance(item[key], str):
            raise InvalidRequest(f"`{where}.{key}` must be a string.", param=f"{where}.{key}")
    known = kinds.items.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise UnsupportedField(
            f"`{where}.type`: items of type {kind!r} are not served by this server. Leave the item out.",
            param=f"{where}.type",
        )
    known.read(item, where, conversation)
    conversation.leads = conversation.leads and stays_in_head(kinds, item)
    if conversation.compacts:
        return None  # a trigger is not part of the conversation
    return known.listed({**item, "type": kind, "id": item.get("id") or conversation.ids(known.prefix)})


def with_own_ids(kinds: Kinds, items: Iterable[Item], taken: set[str], ids: Ids) -> list[Item]:
    """Makes ids unique: an item whose id is taken, as when a client sends it again, gets a new one.

    Otherwise paging would never end, since a page begins after its `after` item.
    """
    own: list[Item] = []
    for item in items:
        own.append(item if item["id"] not in taken else {**item, "id": ids(kinds.id_prefix(item["type"]))})
        taken.add(own[-1]["id"])
    return own
