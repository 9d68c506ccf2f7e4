"""Input items of calls, their outputs and added tools: one handler per kind, in one table.

A handler takes an item that is known to be an object. It adds the item's segments to the conversation, in the
form that the model has seen or would have seen, or raises a 400 that names the field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.apis.responses.input.reading import (
    Approved,
    Conversation,
    Handler,
    Item,
    function_recipient,
)
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.content.tools import SEARCH, recipient_of
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.http.validation import json_text, text_field
from gpt_oss_server.items.listings import carried
from gpt_oss_server.items.past import past_segments
from gpt_oss_server.items.search import declared_text
from gpt_oss_server.items.table import BY_ITEM_TYPE

_NOT_KEPT = "(The result was not kept in this conversation.)"


def _function_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call that the model made of a function."""
    text_field(item, "name", where)
    arguments = json_text(item, "arguments", where)
    conversation.call(where, item, function_recipient(item), arguments, "json")


def _custom_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call that the model made of a custom tool."""
    text_field(item, "name", where)
    conversation.call(
        where, item, function_recipient(item), text_of(item.get("input"), f"{where}.input"), None
    )


def _client_call(name: str, key: str) -> Callable[[Item, str, Conversation], None]:
    """The handler of calls whose shape the API fixes: the item's action is the JSON that the model wrote."""

    def handler(item: Item, where: str, conversation: Conversation) -> None:
        """A call that the model made of this tool, whose action is what the model wrote."""
        action = item.get(key)
        if not isinstance(action, dict):
            raise InvalidRequest(f"`{where}.{key}` must be an object.", param=f"{where}.{key}")
        written = {k: v for k, v in action.items() if v not in (None, {}) and (k, v) != ("type", "exec")}
        conversation.call(where, item, recipient_of(name, None), to_json(written).decode(), "json")

    return handler


def _output(item: Item, where: str, conversation: Conversation) -> None:
    """The result of a call: a text, or parts."""
    conversation.result(where, item, text_of(item.get("output"), f"{where}.output"))


def _json_output(item: Item, where: str, conversation: Conversation) -> None:
    """The result of a call. If the call has failed, the model also reads its status."""
    output, status = item.get("output"), item.get("status")
    if output is None or status == "failed":
        output = {"status": status, **({"output": output} if output else {})}
    conversation.result(where, item, output if isinstance(output, str) else to_json(output).decode())


def _hosted_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call of a hosted tool, with its result if the item carries it or the server still has it."""
    tool = BY_ITEM_TYPE[item["type"]]
    past = tool.past_call(item)
    recipient = f"{tool.namespace}.{past.function}" if past.function else tool.namespace
    result = conversation.results.get(str(item.get("id"))) or past.result or _NOT_KEPT
    for segment in past_segments(conversation.renderer, recipient, past.arguments, result):
        conversation.add(segment)


def _mcp_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call of an MCP server's tool, with its result if the item carries it or the server still has it."""
    recipient = _mcp_recipient(item, where, conversation)
    known = conversation.results.get(str(item.get("id")))
    result = known or str(item.get("output") or _error_text(item.get("error"))) or _NOT_KEPT
    # The history already has an approved call: it is the one that awaited approval.
    if not conversation.was_made(item.get("approval_request_id"), result):
        arguments = _mcp_arguments(item, where)
        conversation.add(conversation.renderer.call(recipient, arguments))
        conversation.add(conversation.renderer.tool_result(recipient, result))


def _mcp_recipient(item: Item, where: str, conversation: Conversation) -> str:
    """The recipient that the model knows the tool by: from the server's list, if the request has that server.

    Otherwise it is a valid recipient that no other tool has.
    """
    from tools.mcp.names import safe_names, safe_namespace

    label, name = text_field(item, "server_label", where), text_field(item, "name", where)
    for recipient, tool in conversation.servers.items():
        if tool == (label, name):
            return recipient
    space = safe_namespace(label)
    taken = [recipient.removeprefix(f"{space}.") for recipient in conversation.servers]
    return f"{space}.{safe_names([name], taken=taken)[name]}"


def _mcp_arguments(item: Item, where: str) -> str:
    return json_text(item, "arguments", where) if item.get("arguments") is not None else ""


def _error_text(error: Any) -> str:
    """The text of an mcp_call's error, which is a string or an object with text parts."""
    if isinstance(error, dict):
        return text_of(error.get("content"), "error") or str(error.get("message") or "")
    return str(error or "")


def _approval_request(item: Item, where: str, conversation: Conversation) -> None:
    """A call that waited for approval."""
    recipient = _mcp_recipient(item, where, conversation)
    arguments = _mcp_arguments(item, where)
    conversation.approvals[text_field(item, "id", where)] = (recipient, arguments)
    conversation.add(conversation.renderer.call(recipient, arguments))


def _approval_response(item: Item, where: str, conversation: Conversation) -> None:
    """Whether such a call may run; with `approve`, it runs before the model continues."""
    request_id = text_field(item, "approval_request_id", where)
    if request_id not in conversation.approvals:
        raise InvalidRequest(
            f"`{where}.approval_request_id`: no call {request_id!r} waits for approval. Send its "
            "mcp_approval_request item too, or the previous_response_id of the response that made it.",
            param=f"{where}.approval_request_id",
        )
    if not isinstance(item.get("approve"), bool):
        raise InvalidRequest(f"`{where}.approve` must be true or false.", param=f"{where}.approve")
    recipient, arguments = conversation.approvals.pop(request_id)
    if item["approve"]:
        conversation.approved.append(Approved(request_id, recipient, arguments))
        return
    reason = f" Their reason: {item['reason']}" if item.get("reason") else ""
    refusal = f"The user did not approve this call, so it was not made.{reason}"
    conversation.add(conversation.renderer.tool_result(recipient, refusal))


def _search_call(item: Item, where: str, conversation: Conversation) -> None:
    """A search for tools."""
    arguments = item.get("arguments")
    written = arguments if isinstance(arguments, str) else to_json(arguments or {}).decode()
    conversation.add(conversation.renderer.call(recipient_of(SEARCH, None), written))


def _search_output(item: Item, where: str, conversation: Conversation) -> None:
    """The tools that a search found."""
    read = conversation.tools_of(item, where)
    declared = declared_text(list(read.clients.values()), read.spaces)
    segment = conversation.renderer.tool_result(recipient_of(SEARCH, None), declared)
    conversation.add(replace(segment, tools=tuple(item["tools"])))


def _additional_tools(item: Item, where: str, conversation: Conversation) -> None:
    """Further tools: declared with the request's own at the head of a conversation, else at this place."""
    read = conversation.tools_of(item, where)
    if conversation.leads:
        segment = Segment("developer", (), text="")
    else:
        declared = declared_text(list(read.clients.values()), read.spaces)
        segment = conversation.renderer.tools_message(declared)
    conversation.add(replace(segment, tools=tuple(item["tools"])))


def _mcp_listing(item: Item, where: str, conversation: Conversation) -> None:
    """The tools of an MCP server, which need not be listed again. The item adds nothing to the prompt."""
    conversation.add(carried(item))


CALL_HANDLERS: dict[str, Handler] = {
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
    "tool_search_call": _search_call,
    "tool_search_output": _search_output,
    "additional_tools": _additional_tools,
    "mcp_call": _mcp_call,
    **dict.fromkeys(BY_ITEM_TYPE, _hosted_call),
    "mcp_list_tools": _mcp_listing,
    "mcp_approval_request": _approval_request,
    "mcp_approval_response": _approval_response,
}
