"""Input items to Harmony messages: one handler per kind of item, in one table.

In: the request's `input` (text, one item, or a list of them) and the recipients of earlier calls. Out: the
segments that they add to the conversation, the items as they are listed later, each with an id, and the
recipients of the calls among them. What a text model cannot take degrades to a note in the prompt; an item
that would silently change the conversation is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.parts import text_of
from gpt_oss_server.responses.compaction import unsealed
from gpt_oss_server.responses.reasoning import unsealed_reasoning
from gpt_oss_server.sealing import Sealer
from gpt_oss_server.tooling.client_tools import recipient_of
from gpt_oss_server.validation import json_type

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Approved:
    """A call to an MCP tool that waited for the client's consent and has it."""

    request_id: str
    recipient: str
    arguments: str


@dataclass(slots=True)
class Conversation:
    """What a list of items adds to the conversation, while it is read in order."""

    renderer: Renderer
    ids: Ids
    sealer: Callable[[], Sealer]  # made when it is first needed
    segments: list[Segment] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    recipients: dict[str, str] = field(default_factory=dict)  # call_id → recipient, earlier turns' included
    approvals: dict[str, tuple[str, str]] = field(default_factory=dict)  # likewise, of calls that wait
    approved: list[Approved] = field(default_factory=list)
    compacts: bool = False  # a compaction is asked for, of all that came before

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)

    def call(self, where: str, item: Item, recipient: str, arguments: str, content_type: str | None) -> None:
        self.recipients[_text(item, "call_id", where)] = recipient
        if isinstance(item.get("id"), str):
            self.recipients[item["id"]] = recipient  # what local_shell_call_output names its call by
        self.add(self.renderer.call(recipient, arguments, content_type=content_type))

    def result(self, where: str, item: Item, text: str) -> None:
        call_id = item.get("call_id") or item.get("id")  # local_shell_call_output has only `id`
        recipient = self.recipients.get(call_id) if isinstance(call_id, str) else None
        if recipient is None and isinstance(item.get("name"), str):
            recipient = function_recipient(item)
        if recipient is None:
            raise InvalidRequest(
                f"`{where}`: no call with call_id {call_id!r} comes before this output. "
                "Send the call's item too, or the previous_response_id of the response that made it.",
                param=where,
            )
        self.add(self.renderer.tool_result(recipient, text))


def function_recipient(item: Mapping[str, Any]) -> str:
    return recipient_of(item["name"], item.get("namespace"))


def read_input(
    given: str | Item | list[Any] | None,
    renderer: Renderer,
    ids: Ids,
    *,
    recipients: Mapping[str, str],
    approvals: Mapping[str, tuple[str, str]],
    sealer: Callable[[], Sealer],
    where: str = "input",
) -> Conversation:
    conversation = Conversation(renderer, ids, sealer, recipients=dict(recipients), approvals=dict(approvals))
    if isinstance(given, str):
        items: list[Any] = [{"type": "message", "role": "user", "content": given}]
    elif isinstance(given, dict):
        items = [given]
    else:
        items = given or []
    for index, item in enumerate(items):
        if conversation.compacts:
            raise InvalidRequest(
                f"`{where}[{index - 1}]`: a compaction_trigger must be the last item.",
                param=f"{where}[{index - 1}]",
            )
        _read_item(item, f"{where}[{index}]", conversation)
    return conversation


def prefix_of(kind: str) -> str:
    """What the ids of such items begin with."""
    return _ID_PREFIXES.get(kind, "item")


def _read_item(item: Any, where: str, conversation: Conversation) -> None:
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
    if conversation.compacts:
        return  # asked for once, and no part of what was said
    listed = {**item, "type": kind, "id": item.get("id") or conversation.ids(prefix_of(kind))}
    if kind.endswith(("_call", "_call_output")):
        listed["status"] = item.get("status") or "completed"
    conversation.items.append(_listed_message(listed) if kind == "message" else listed)


def _listed_message(item: Item) -> Item:
    """Messages are listed in their full form, whatever shorthand they were sent in."""
    content = item["content"] if item["content"] is not None else []
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        part = {"type": kind, "text": content}
        content = [{**part, "annotations": [], "logprobs": []} if kind == "output_text" else part]
    return {**item, "content": content, "status": item.get("status") or "completed"}


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
            commentary = phase == "commentary"
            conversation.add(renderer.preamble(text) if commentary else renderer.answer(text))
        case _:
            raise InvalidRequest(
                f"`{where}.role` must be 'user', 'assistant', 'developer' or 'system', not {role!r}.",
                param=f"{where}.role",
            )


def _reasoning(item: Item, where: str, conversation: Conversation) -> None:
    """What we have sealed is replayed to the token, else what is in the open: the text, or a summary."""
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


def _function_call(item: Item, where: str, conversation: Conversation) -> None:
    _text(item, "name", where)
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        raise InvalidRequest(f"`{where}.arguments` must be a string of JSON.", param=f"{where}.arguments")
    conversation.call(where, item, function_recipient(item), arguments, "json")


def _custom_call(item: Item, where: str, conversation: Conversation) -> None:
    _text(item, "name", where)
    conversation.call(
        where, item, function_recipient(item), text_of(item.get("input"), f"{where}.input"), None
    )


def _client_call(name: str, key: str) -> Callable[[Item, str, Conversation], None]:
    """A call of a tool whose shape the API fixes: its action is what the model wrote, as JSON."""

    def handler(item: Item, where: str, conversation: Conversation) -> None:
        action = item.get(key)
        if not isinstance(action, dict):
            raise InvalidRequest(f"`{where}.{key}` must be an object.", param=f"{where}.{key}")
        written = {k: v for k, v in action.items() if v not in (None, {}) and (k, v) != ("type", "exec")}
        conversation.call(where, item, recipient_of(name, None), to_json(written).decode(), "json")

    return handler


def _output(item: Item, where: str, conversation: Conversation) -> None:
    conversation.result(where, item, text_of(item.get("output"), f"{where}.output"))


def _json_output(item: Item, where: str, conversation: Conversation) -> None:
    """Text as it is, but where it does not say that the call has failed."""
    output, status = item.get("output"), item.get("status")
    if output is None or status == "failed":
        output = {"status": status, **({"output": output} if output else {})}
    conversation.result(where, item, output if isinstance(output, str) else to_json(output).decode())


def _hosted_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call that some server ran, with its result where the item carries one."""
    renderer = conversation.renderer
    match item["type"]:
        case "code_interpreter_call":
            recipient, arguments, content_type = "python", str(item.get("code") or ""), "code"
            logs = [o.get("logs", "") for o in item.get("outputs") or [] if isinstance(o, dict)]
            result = "".join(str(log) for log in logs)
        case "mcp_call":
            recipient = _mcp_recipient(item, where)
            arguments, content_type = str(item.get("arguments") or ""), "json"
            result = str(item.get("output") or _error_text(item.get("error")))
        case _:
            action = item.get("action") if isinstance(item.get("action"), dict) else {}
            recipient, content_type = "browser.search", "json"
            arguments, result = to_json(action).decode(), ""
    conversation.add(renderer.call(recipient, arguments, channel="analysis", content_type=content_type))
    note = result or "(The result was not kept in this conversation.)"
    conversation.add(renderer.tool_result(recipient, note, channel="analysis"))


def _mcp_recipient(item: Item, where: str) -> str:
    """The server's tool as the model knows it, by words that a recipient can carry."""
    from tools.mcp.names import safe_names, safe_namespace

    word = next(iter(safe_names([_text(item, "name", where)]).originals))
    return f"{safe_namespace(_text(item, 'server_label', where))}.{word}"


def _error_text(error: Any) -> str:
    """An mcp_call's error is text, or an object with parts of text."""
    if isinstance(error, dict):
        return text_of(error.get("content"), "error") or str(error.get("message") or "")
    return str(error or "")


def _approval_request(item: Item, where: str, conversation: Conversation) -> None:
    recipient = _mcp_recipient(item, where)
    arguments = str(item.get("arguments") or "")
    conversation.approvals[_text(item, "id", where)] = (recipient, arguments)
    conversation.add(conversation.renderer.call(recipient, arguments))


def _approval_response(item: Item, where: str, conversation: Conversation) -> None:
    request_id = _text(item, "approval_request_id", where)
    if request_id not in conversation.approvals:
        raise InvalidRequest(
            f"`{where}.approval_request_id`: no call {request_id!r} waits for approval. Send its "
            "mcp_approval_request item too, or the previous_response_id of the response that made it.",
            param=f"{where}.approval_request_id",
        )
    recipient, arguments = conversation.approvals.pop(request_id)
    if item.get("approve") is True:
        conversation.approved.append(Approved(request_id, recipient, arguments))
        return
    reason = f" Their reason: {item['reason']}" if item.get("reason") else ""
    refusal = f"The user did not approve this call, so it was not made.{reason}"
    conversation.add(conversation.renderer.tool_result(recipient, refusal))


def _compaction(item: Item, where: str, conversation: Conversation) -> None:
    compacted = unsealed(conversation.sealer(), _text(item, "encrypted_content", where))
    if compacted is None:
        raise InvalidRequest(
            f"`{where}.encrypted_content`: this compaction was not made by this server, or with another key "
            "(--sealing-key-file), or was changed. Send what it stands for, the items before it.",
            param=f"{where}.encrypted_content",
        )
    conversation.segments += compacted.segments(conversation.renderer)


def _compaction_trigger(item: Item, where: str, conversation: Conversation) -> None:
    conversation.compacts = True


def _nothing(item: Item, where: str, conversation: Conversation) -> None:
    """Adds nothing to the prompt: a list of tools is declared by the request, not by its history."""


def _text(item: Item, key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"`{where}.{key}` must be a non-empty string.", param=f"{where}.{key}")
    return value


_HANDLERS: dict[str, Callable[[Item, str, Conversation], None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "local_shell_call": _client_call("local_shell", "action"),
    "local_shell_call_output": _json_output,
    "shell_call": _client_call("shell", "action"),
    "shell_call_output": _json_output,
    "apply_patch_call": _client_call("apply_patch", "operation"),
    "apply_patch_call_output": _json_output,
    "code_interpreter_call": _hosted_call,
    "mcp_call": _hosted_call,
    "web_search_call": _hosted_call,
    "mcp_list_tools": _nothing,
    "mcp_approval_request": _approval_request,
    "mcp_approval_response": _approval_response,
    "compaction": _compaction,
    "compaction_summary": _compaction,  # its name in older clients
    "compaction_trigger": _compaction_trigger,
}

_ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "code_interpreter_call": "ci",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
    "compaction": "cmp",
    "web_search_call": "ws",
}
