"""Reads input items into Harmony messages: one handler per kind of item, in one table.

Takes the request's `input` (text, one item, or a list of them) and the recipients of earlier calls. Returns
the segments that the items add to the conversation, the items as they are listed later, each with an id, and
the recipients of their calls. Content that a text model cannot read becomes a note in the prompt. An item
that would silently change the conversation is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from gpt_oss_server.apis.responses.input.answers import Answers, answered_call_id, answers_of, call_ids
from gpt_oss_server.apis.responses.input.calls import CALL_HANDLERS
from gpt_oss_server.apis.responses.input.compacted import unsealed
from gpt_oss_server.apis.responses.input.listing import as_listed, id_prefix, with_own_ids
from gpt_oss_server.apis.responses.input.loaded import stays_in_head
from gpt_oss_server.apis.responses.input.reading import Conversation, Handler, Item
from gpt_oss_server.apis.responses.items.reasoning import unsealed_reasoning
from gpt_oss_server.content.pairing import in_order_of_calls
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.fields import Effort
from gpt_oss_server.http.validation import json_type, text_field
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.requested import RequestTools
from gpt_oss_server.stores.sealing import Sealer


def read_input(
    given: str | Item | list[Any] | None,
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
        recipients=dict(recipients),
        approvals=dict(approvals),
        results=results or {},
        servers=servers or {},
        leads=leads,
        tools=tools or {},
    )
    items = _as_list(given)
    answers = answers_of(items, where) if is_whole else Answers()
    at, listed = "", list[tuple[int, Item]]()
    before_call = _before_calls(items)
    for index, item in in_order_of_calls(items, calls=call_ids, answers=answered_call_id, past=recipients):
        if conversation.compacts:
            raise InvalidRequest(f"`{at}`: a compaction_trigger must be the last item.", param=at)
        if index in answers.replaced:
            continue
        at = f"{where}[{index}]"
        conversation.before_call = before_call[index]
        if (read := _read_item(item, at, conversation)) is not None:
            listed.append((index, read))
        if index in answers.cut_off:
            conversation.close_cut_call(item)
        conversation.sources += [index] * (len(conversation.segments) - len(conversation.sources))
    as_sent = [item for _, item in sorted(listed, key=lambda each: each[0])]
    conversation.items = with_own_ids(as_sent, set(), ids)
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


def _read_item(item: Any, where: str, conversation: Conversation) -> Item | None:
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
    handler = HANDLERS.get(kind) if isinstance(kind, str) else None
    if handler is None:
        raise UnsupportedField(
            f"`{where}.type`: items of type {kind!r} are not served by this server. Leave the item out.",
            param=f"{where}.type",
        )
    handler(item, where, conversation)
    conversation.leads = conversation.leads and stays_in_head(item)
    if conversation.compacts:
        return None  # a trigger is not part of the conversation
    return as_listed({**item, "type": kind, "id": item.get("id") or conversation.ids(id_prefix(kind))})


def _message(item: Item, where: str, conversation: Conversation) -> None:
    """A message; without `role: assistant`, its text is new to the model."""
    role = item.get("role")
    renderer = conversation.renderer
    if "content" not in item:
        raise InvalidRequest(f"`{where}.content` is missing.", param=f"{where}.content")
    text = text_of(item["content"], f"{where}.content")
    match role:
        case "user":
            conversation.add(renderer.user(text))
        case "developer" | "system":
            conversation.add(renderer.developer_message(text))
        case "assistant":
            phase = item.get("phase")
            if phase not in (None, "commentary", "final_answer"):
                raise InvalidRequest(
                    f"`{where}.phase` must be 'commentary' or 'final_answer'.", param=f"{where}.phase"
                )
            commentary = phase == "commentary" or (phase is None and conversation.before_call)
            if phase != "commentary":  # commentary may precede the approved call's run
                conversation.was_answered()
            conversation.add(renderer.preamble(text) if commentary else renderer.answer(text))
        case _:
            raise InvalidRequest(
                f"`{where}.role` must be 'user', 'assistant', 'developer' or 'system', not {role!r}.",
                param=f"{where}.role",
            )


def _reasoning(item: Item, where: str, conversation: Conversation) -> None:
    """Reasoning: sealed, with its very tokens; otherwise its text or its summary."""
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        segment = unsealed_reasoning(conversation.sealer, sealed)
        if segment is not None:
            conversation.add(segment)
            return
    content = item.get("content") or item.get("summary") or []
    text = text_of(content, f"{where}.content")
    if text:
        conversation.add(conversation.renderer.reasoning(text))


def _agent_message(item: Item, where: str, conversation: Conversation) -> None:
    """A message from another of the client's agents, rendered as a user message."""
    author, recipient = (text_field(item, key, where) for key in ("author", "recipient"))
    text = text_of(item.get("content"), f"{where}.content")
    conversation.add(conversation.renderer.user(f"Message from agent {author} to {recipient}:\n{text}"))


def _generated_image(item: Item, where: str, conversation: Conversation) -> None:
    """An image that another model made, which becomes a note that there is one."""
    conversation.add(
        conversation.renderer.preamble(
            "[An image was made here. This model reads text only and cannot see it.]"
        )
    )


def _configuration_update(item: Item, where: str, conversation: Conversation) -> None:
    """The reasoning effort from here on; agents change it within a conversation."""
    reasoning = item.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort is not None and effort not in get_args(Effort):
        raise InvalidRequest(
            f"`{where}.reasoning.effort` must be one of {', '.join(map(repr, get_args(Effort)))}.",
            param=f"{where}.reasoning.effort",
        )
    conversation.effort = effort or conversation.effort


def _compaction(item: Item, where: str, conversation: Conversation) -> None:
    """A compaction by this server, which replaces everything before it."""
    compacted = unsealed(conversation.sealer, text_field(item, "encrypted_content", where))
    if compacted is None:
        raise InvalidRequest(
            f"`{where}.encrypted_content`: this server did not seal this compaction, or used another key "
            "(--sealing-key-file), or the content was changed. Send the items that it replaces.",
            param=f"{where}.encrypted_content",
        )
    conversation.segments += compacted.segments(conversation.renderer)


def _context_compaction(item: Item, where: str, conversation: Conversation) -> None:
    """A compaction; one that the client wrote itself has no sealed content and adds nothing."""
    if item.get("encrypted_content") is not None:
        _compaction(item, where, conversation)


def _compaction_trigger(item: Item, where: str, conversation: Conversation) -> None:
    """The last item: the response is a compaction of what comes before it."""
    conversation.compacts = True


HANDLERS: dict[str, Handler] = {
    "message": _message,
    "agent_message": _agent_message,
    "configuration_update": _configuration_update,
    "image_generation_call": _generated_image,
    "reasoning": _reasoning,
    "compaction": _compaction,
    "compaction_summary": _compaction,  # its name in older clients
    "context_compaction": _context_compaction,
    "compaction_trigger": _compaction_trigger,
    **CALL_HANDLERS,
}
