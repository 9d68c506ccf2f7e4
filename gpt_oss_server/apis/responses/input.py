"""Reads input items into Harmony messages, each as its kind's row says.

Takes the request's `input` (text, one item, or a list of them) and the past that it continues. Returns
the segments that the items add to the conversation, the items as they are listed later, each with an id, and
the recipients of their calls; before that, the tools that they load. Content that a text model cannot read
becomes a note in the prompt. An item that would silently change the conversation is refused by name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpt_oss_server.apis.responses.past import Past
from gpt_oss_server.content.pairing import Unpaired, in_order_of_calls, unpaired
from gpt_oss_server.content.parts import as_items
from gpt_oss_server.content.tools import RequestTools, Tool, recipient_of
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.history import Segment, since_compaction
from gpt_oss_server.harmony.render import CUT_OFF, Renderer
from gpt_oss_server.http.validation import json_type
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.conversation import Conversation, answered_call
from gpt_oss_server.items.mcp import records_in
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import SEARCH, hide_deferred
from gpt_oss_server.runs.work import Work

_SEARCH = recipient_of(SEARCH, None)
_UNFINISHED = ("incomplete", "in_progress")


def tools_of(
    kinds: Kinds, tools: Sequence[Tool] | None, history: Sequence[Segment], body_input: Any, *, offered: bool
) -> RequestTools:
    """The request's tools, and those that the history and the input load: by declaration or by a search.

    Tools at the head of a conversation are declared there with the request's own; later ones are declared at
    their item, so that the prompt before it does not change. `of_items` has them by their item's place, so
    that they are parsed once.
    """
    read = kinds.read_tools(tools or (), offered=offered)
    shown = {id(segment) for segment in since_compaction(history)}
    for segment in history:
        read.listings |= records_in(segment.tools)
        if segment.tools:
            at_head = not segment.tokens or id(segment) not in shown
            read.load(kinds.read_loaded(segment.tools, "input"), at_head=at_head)
    for item, where, at_head in _loading(kinds, body_input, leads=not history):
        read.of_items[where] = kinds.read_loaded(item.get("tools"), f"{where}.tools")
        read.load(read.of_items[where], at_head=at_head)
    read.listings |= records_in(body_input if isinstance(body_input, list) else ())
    hide_deferred(read)
    return read


def _stays_in_head(kinds: Kinds, item: Any) -> bool:
    """Whether a conversation's head continues after this item."""
    if not isinstance(item, Mapping):
        return False
    kind = kinds.item_type(item.get("type"))
    return (kind is not None and kind.in_head) or item.get("role") in ("developer", "system")


def _loading(kinds: Kinds, body_input: Any, *, leads: bool) -> Iterator[tuple[Mapping[str, Any], str, bool]]:
    """The items that load tools, their places, and whether they belong to the conversation's head."""
    items = body_input if isinstance(body_input, list) else [body_input]
    for index, item in enumerate(items):
        kind = kinds.item_type(item.get("type")) if isinstance(item, Mapping) else None
        if kind is not None and kind.loads_tools:
            yield item, f"input[{index}]", leads and kind.in_head
        leads = leads and _stays_in_head(kinds, item)


def read_input(
    items_or_text: str | Item | list[Any] | None,
    work: Work,
    past: Past,
    *,
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
    kinds, recipients = work.kinds, past.recipients
    conversation = Conversation(
        work.model.renderer,
        work.ids,
        work.keep.sealer,
        kinds.read_loaded,
        recipients=dict(recipients),
        approvals=dict(past.approvals),
        results=past.results,
        servers=servers or {},
        leads=leads,
        tools=tools or {},
    )
    items = as_items(items_or_text)
    answers = _answers(kinds, items, where) if is_whole else Unpaired(frozenset(), {})
    at, listed, before_call = "", dict[int, Item](), _before_calls(items)
    for index, item in in_order_of_calls(items, calls=_call_ids, answers=_answered_call, past=recipients):
        if conversation.compacts:
            raise InvalidRequest.at(at, ": a compaction_trigger must be the last item.")
        if index in answers.replaced:
            continue
        at = f"{where}[{index}]"
        conversation.before_call = before_call[index]
        if read := _read_item(kinds, item, at, conversation):
            listed[index] = read
        if index in answers.unanswered:
            conversation.close_cut_call(item)
        conversation.sources += [index] * (len(conversation.segments) - len(conversation.sources))
    conversation.items = with_own_ids(kinds, [listed[index] for index in sorted(listed)], set(), work.ids)
    return conversation


def _before_calls(items: Sequence[Any]) -> list[bool]:
    """For each item, whether the assistant still makes a call after it, so that it is no final answer."""
    flags, call_follows = [], False
    for item in reversed(items):
        flags.append(call_follows)
        kind, role = (item.get("type"), item.get("role")) if isinstance(item, dict) else (None, None)
        if isinstance(kind, str) and (kind.endswith("_call") or kind == "mcp_approval_request"):
            call_follows = True
        elif kind != "reasoning" and not (kind in (None, "message") and role == "assistant"):
            call_follows = False
    return flags[::-1]


def _read_item(kinds: Kinds, item: Any, where: str, conversation: Conversation) -> Item | None:
    """The item as it is listed later; None for a trigger."""
    if isinstance(item, str):  # some clients send a list of plain strings
        item = {"type": "message", "role": "user", "content": item}
    if not isinstance(item, dict):
        raise InvalidRequest.at(where, f"must be an item object, but is {json_type(item)}.")
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind is None:
        raise InvalidRequest(
            f"`{where}` has neither `type` nor `role`; a message is {{'role': 'user', 'content': '…'}}.",
            param=f"{where}.type",
        )
    for key in ("id", "status", "phase", "namespace"):
        if item.get(key) is not None and not isinstance(item[key], str):
            raise InvalidRequest.at(f"{where}.{key}", "must be a string.")
    known = kinds.item_type(kind)
    if known is None:
        raise UnsupportedField.at(
            f"{where}.type", f": items of type {kind!r} are not served by this server. Leave the item out."
        )
    known.read(item, where, conversation)
    conversation.leads = conversation.leads and _stays_in_head(kinds, item)
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


def _answers(kinds: Kinds, items: Sequence[Any], where: str) -> Unpaired:
    """The calls that were cut off and so have no output, and the outputs that a later one replaces.

    A whole call without an output is refused, as by OpenAI's service.
    """

    def client_calls(item: Any) -> list[list[str]]:
        ids = _call_ids(item)
        kind = kinds.item_type(item["type"]) if ids else None
        return [ids] if kind and kind.needs_output and isinstance(item.get("call_id"), str) else []

    pairs = unpaired(items, calls=client_calls, answers=_answered_call)
    for index, (call_id,) in pairs.unanswered.items():
        if items[index].get("status") not in _UNFINISHED:
            raise _no_output(call_id, f"{where}[{index}]")
    return pairs


def _answered_call(item: Any) -> str | None:
    if not isinstance(item, dict) or not str(item.get("type")).endswith("_call_output"):
        return None
    call_id = answered_call(item)
    return call_id if isinstance(call_id, str) else None


def _call_ids(item: Any) -> list[str]:
    """The ids by which an output may name this call."""
    if not isinstance(item, dict) or not str(item.get("type")).endswith("_call"):
        return []
    return [item[key] for key in ("call_id", "id") if isinstance(item.get(key), str)]


def without_cut_results(
    history: Sequence[Segment],
    waiting: Sequence[Segment],
    answered: Mapping[str, set[str]],
    renderer: Renderer,
) -> Sequence[Segment]:
    """The history without the note that a call was cut off, where its client answers it after all.

    If a tool has more outputs than calls that wait for one, they answer calls that were cut off.
    """
    left = Counter(call.recipient for call in waiting)
    late = {
        recipient: count for recipient, ids in answered.items() if (count := len(ids) - left[recipient]) > 0
    }
    notes = {renderer.tool_result(recipient, CUT_OFF).tokens: recipient for recipient in late}
    kept: list[Segment] = []
    for segment in reversed(history) if notes else ():
        recipient = notes.get(segment.tokens)
        if recipient is None or not late[recipient]:
            kept.append(segment)
        else:
            late[recipient] -= 1
    return kept[::-1] if notes else history


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
            open_ids = [call for call, to in recipients.items() if to == recipient and call not in ids]
            named = [call for call in open_ids if call.startswith("call")]  # calls have two ids
            raise _no_output((named or open_ids)[-1], "input")


def _no_output(call_id: str, where: str) -> InvalidRequest:
    return InvalidRequest(
        f"No tool output found for function call {call_id}. Send its output after it, with the same call_id.",
        param=where,
    )
