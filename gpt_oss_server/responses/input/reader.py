"""Input items to Harmony messages: one handler per kind of item, in one table.

In: the request's `input` (text, one item, or a list of them) and the recipients of earlier calls. Out: the
segments that they add to the conversation, the items as they are listed later, each with an id, and the
recipients of the calls among them. Content that a text model cannot read becomes a note in the prompt; an
item that would silently change the conversation is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from gpt_oss_server.content.pairing import in_order_of_calls
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.fields import Effort
from gpt_oss_server.http.validation import json_type, text_field
from gpt_oss_server.ids import Ids
from gpt_oss_server.responses.input.calls import CALL_HANDLERS
from gpt_oss_server.responses.input.compacted import unsealed
from gpt_oss_server.responses.input.listing import as_listed, id_prefix, with_own_ids
from gpt_oss_server.responses.input.loaded import leads_still
from gpt_oss_server.responses.input.reading import Conversation, Handler, Item, answered_call
from gpt_oss_server.responses.items.reasoning import unsealed_reasoning
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.tooling.requested import RequestTools


def read_input(
    given: str | Item | list[Any] | None,
    renderer: Renderer,
    ids: Ids,
    *,
    recipients: Mapping[str, str],
    approvals: Mapping[str, tuple[str, str]],
    sealer: Callable[[], Sealer],
    results: Mapping[str, str] | None = None,
    servers: Mapping[str, tuple[str, str]] | None = None,
    tools: Mapping[str, RequestTools] | None = None,
    where: str = "input",
    leads: bool = False,
) -> Conversation:
    """`servers`: the tools of MCP servers by their recipients. `leads`: nothing comes before these items.

    `tools`: those of items whose tools have been read, by the place of the item.
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
    if isinstance(given, str):
        items: list[Any] = [{"type": "message", "role": "user", "content": given}]
    elif isinstance(given, dict):
        items = [given]
    else:
        items = given or []
    at, listed = "", list[tuple[int, Item]]()
    before_call = _before_calls(items)
    for index, item in in_order_of_calls(items, calls=_calls_of, answers=_answered_by, past=recipients):
        if conversation.compacts:
            raise InvalidRequest(f"`{at}`: a compaction_trigger must be the last item.", param=at)
        at = f"{where}[{index}]"
        conversation.before_call = before_call[index]
        if (read := _read_item(item, at, conversation)) is not None:
            listed.append((index, read))
        conversation.sources += [index] * (len(conversation.segments) - len(conversation.sources))
    as_sent = [item for _, item in sorted(listed, key=lambda each: each[0])]
    conversation.items = with_own_ids(as_sent, set(), ids)
    return conversation


def _calls_of(item: Any) -> list[str]:
    """The ids that an output may name a call by."""
    if not isinstance(item, dict) or not str(item.get("type")).endswith("_call"):
        return []
    return [item[key] for key in ("call_id", "id") if isinstance(item.get(key), str)]


def _answered_by(item: Any) -> str | None:
    if not isinstance(item, dict) or not str(item.get("type")).endswith("_call_output"):
        return None
    call = answered_call(item)
    return call if isinstance(call, str) else None


def _before_calls(items: Sequence[Any]) -> list[bool]:
    """Of each item whether the assistant goes on behind it to call something: then it is no answer yet."""
    found, goes_on = [], False
    for item in reversed(items):
        found.append(goes_on)
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and (kind.endswith("_call") or kind == "mcp_approval_request"):
            goes_on = True
        elif kind != "reasoning" and not (kind in (None, "message") and _is_assistants(item)):
            goes_on = False
    return found[::-1]


def _is_assistants(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "assistant"


def _read_item(item: Any, where: str, conversation: Conversation) -> Item | None:
    """The item as it is listed later."""
    if isinstance(item, str):  # a list of plain strings is what some clients send
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
    handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
    if handler is None:
        raise UnsupportedField(
            f"`{where}.type`: items of type {kind!r} are not served by this server. Leave the item out.",
            param=f"{where}.type",
        )
    handler(item, where, conversation)
    conversation.leads = conversation.leads and leads_still(item)
    if conversation.compacts:
        return None  # a trigger: it is no part of the conversation
    return as_listed({**item, "type": kind, "id": item.get("id") or conversation.ids(id_prefix(kind))})


def _message(item: Item, where: str, conversation: Conversation) -> None:
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
            if phase != "commentary":  # which may come before the call has been made
                conversation.was_answered()
            conversation.add(renderer.preamble(text) if commentary else renderer.answer(text))
        case _:
            raise InvalidRequest(
                f"`{where}.role` must be 'user', 'assistant', 'developer' or 'system', not {role!r}.",
                param=f"{where}.role",
            )


def _reasoning(item: Item, where: str, conversation: Conversation) -> None:
    """Sealed reasoning is replayed to the token; of other items the text is rendered, or the summary."""
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        segment = unsealed_reasoning(conversation.sealer(), sealed)
        if segment is not None:
            conversation.add(segment)
            return
    content = item.get("content") or item.get("summary") or []
    text = text_of(content, f"{where}.content")
    if text:
        conversation.add(conversation.renderer.reasoning(text))


def _agent_message(item: Item, where: str, conversation: Conversation) -> None:
    """A message of another agent of the client: the model receives it as it receives a user's."""
    author, recipient = (text_field(item, key, where) for key in ("author", "recipient"))
    text = text_of(item.get("content"), f"{where}.content")
    conversation.add(conversation.renderer.user(f"Message from agent {author} to {recipient}:\n{text}"))


def _generated_image(item: Item, where: str, conversation: Conversation) -> None:
    conversation.add(
        conversation.renderer.preamble(
            "[An image was made here. This model reads text only and cannot see it.]"
        )
    )


def _configuration_update(item: Item, where: str, conversation: Conversation) -> None:
    """How much is thought from here on, as agents change it within a conversation."""
    reasoning = item.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort is not None and effort not in get_args(Effort):
        raise InvalidRequest(
            f"`{where}.reasoning.effort` must be one of {', '.join(map(repr, get_args(Effort)))}.",
            param=f"{where}.reasoning.effort",
        )
    conversation.effort = effort or conversation.effort


def _compaction(item: Item, where: str, conversation: Conversation) -> None:
    compacted = unsealed(conversation.sealer(), text_field(item, "encrypted_content", where))
    if compacted is None:
        raise InvalidRequest(
            f"`{where}.encrypted_content`: this compaction was not made by this server, or with another key "
            "(--sealing-key-file), or was changed. Send what it stands for, the items before it.",
            param=f"{where}.encrypted_content",
        )
    conversation.segments += compacted.segments(conversation.renderer)


def _context_compaction(item: Item, where: str, conversation: Conversation) -> None:
    """One that a client has made by itself is sealed by nobody: it only marks the place."""
    if item.get("encrypted_content") is not None:
        _compaction(item, where, conversation)


def _compaction_trigger(item: Item, where: str, conversation: Conversation) -> None:
    conversation.compacts = True


_HANDLERS: dict[str, Handler] = {
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
