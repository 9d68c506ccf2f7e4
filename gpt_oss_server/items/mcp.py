"""MCP: servers that requests name, lists of their tools, calls of them, and the user's approval of calls.

Takes a declared server, an item of a request, or a call as the model writes it. Returns the items and their
events, and segments without tokens that carry a list to later turns, so that no continued turn lists a server
again. It must not know how a list is fetched or a call is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from gpt_oss_server.content.parts import text_of
from gpt_oss_server.content.tools import RequestTools, Tool
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.http.validation import json_text, text_field
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Event, EventTexts, Item, ItemBuilder, ServerCall, WholeItem
from gpt_oss_server.items.conversation import NOT_KEPT, Approved, Conversation
from gpt_oss_server.items.kind import ItemKind, ItemType, ToolType, completed, with_json_arguments
from tools.extras import how_to_install
from tools.tool import ToolOutput

if TYPE_CHECKING:
    from tools.mcp.listing import McpListing

_CALL_ID, _LIST_ID, _REQUEST_ID = "mcp", "mcpl", "mcpr"  # the prefixes of ids
_LIST = "mcp_list_tools"
Record = Mapping[str, Any]
"""An mcp_list_tools item with the server's `server_url` and `instructions`, or as the client sent it back."""


class McpCallBuilder(ServerCall):
    """A call of an MCP server's tool, or of a tool that has no item of its own."""

    about = "A call of an MCP server's tool, with its `output` or its `error`."
    about_events: ClassVar[EventTexts] = {
        "response.mcp_call.in_progress": "A call of an MCP server's tool begins.",
        "response.mcp_call_arguments.delta": "More of the call's arguments.",
        "response.mcp_call_arguments.done": "The arguments are complete; the tool runs.",
        "response.mcp_call.completed": "The tool has answered.",
        "response.mcp_call.failed": "The tool failed, or was stopped.",
    }
    kind = "mcp_call"
    written = ("response.mcp_call_arguments", "arguments")

    def __init__(self, ids: Ids, server_label: str, name: str, approval: str | None = None) -> None:
        super().__init__(ids(_CALL_ID))
        self._label = server_label
        self._name = name
        self._approval = {"approval_request_id": approval} if approval else {}

    def item(self, status: str, text: str, output: ToolOutput | None = None) -> Item:
        item = {
            "id": self.id,
            "type": self.kind,
            "status": status,
            "server_label": self._label,
            "name": self._name,
            "arguments": text,
            **self._approval,
        }
        if output is None:
            return item
        if output.failed:
            said = {"type": "text", "text": output.details.get("error") or output.text}
            return {**item, "error": {"type": "mcp_tool_execution_error", "content": [said]}}
        return {**item, "output": output.details.get("output") or output.text}  # the model may have read less

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        status = "failed" if output.failed else "completed"
        return [self.step(status)], self.item(status, text, output)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        if self._called:  # the tool was stopped while it ran
            stopped = ToolOutput("The call was stopped before it had answered.", failed=True)
            return self.answered(text, stopped)
        return super().close(text, complete=complete)


class McpApprovalBuilder(ItemBuilder):
    """A call that waits for the client's approval; it ends the turn.

    A call that was cut off must not be approved: it becomes the item of an incomplete call.
    """

    about = "A call that waits for the client's `mcp_approval_response`."
    added_at_end = True
    requests_approval = True

    def __init__(self, ids: Ids, server_label: str, name: str) -> None:
        self._cut_off = McpCallBuilder(ids, server_label, name)
        super().__init__(ids(_REQUEST_ID))
        self._label = server_label
        self._name = name

    def _item(self, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "mcp_approval_request",
            "server_label": self._label,
            "name": self._name,
            "arguments": arguments,
        }

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        return self if complete else self._cut_off

    def open(self) -> tuple[Item, list[Event]]:
        return self._item(""), []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [], self._item(text)


class McpListBuilder(WholeItem):
    """The tools of an MCP server, listed before the turn begins."""

    about = "The tools of an MCP server; without an answer of the server, an `error`."
    about_events: ClassVar[EventTexts] = {
        "response.mcp_list_tools.in_progress": "The tools of an MCP server are listed.",
        "response.mcp_list_tools.completed": "They are listed.",
        "response.mcp_list_tools.failed": "The server did not list them.",
    }

    def open(self) -> tuple[Item, list[Event]]:
        listed = "failed" if "error" in self._item else "completed"
        steps: list[Event] = [{"type": f"response.mcp_list_tools.{step}"} for step in ("in_progress", listed)]
        return {**self._item, "tools": []}, steps


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """The tools of an MCP server, which this server calls."""
    try:
        from tools.mcp.endpoints import public_form
    except ImportError as error:
        raise ToolNotAvailable(
            f"MCP servers cannot be used here. {how_to_install(error)}", param=where
        ) from None
    tools.servers.append((where, tool))
    tools.add_echo(public_form(tool))


def carried(record: Record) -> Segment:
    return Segment("developer", (), tools=(record,))


def list_item(ids: Ids, label: str) -> Item:
    return {"id": ids(_LIST_ID), "type": _LIST, "server_label": label, "tools": []}


def shown_tools(listing: McpListing) -> list[dict[str, Any]]:
    """The tools in the form of an mcp_list_tools item."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.input_schema),
            "annotations": dict(tool.annotations) if tool.annotations else None,
        }
        for tool in listing.tools
    ]


def record_of(label: str, url: str | None, listing: McpListing) -> Record:
    return {
        "type": _LIST,
        "server_label": label,
        "server_url": url,
        "instructions": listing.instructions,
        "tools": shown_tools(listing),
    }


def records_in(tools: Iterable[Any]) -> dict[str, Record]:
    """By server label: the newest listing without an error."""
    return {
        tool["server_label"]: tool
        for tool in tools
        if isinstance(tool, Mapping)
        and tool.get("type") == _LIST
        and isinstance(tool.get("server_label"), str)
        and not tool.get("error")
    }


def carried_listing(written: Mapping[str, Any], records: Mapping[str, Record]) -> McpListing | None:
    """The listing of a request's server; None if the conversation has none, or one of another URL."""
    record = records.get(str(written.get("server_label")))
    if record is None or record.get("server_url", written.get("server_url")) != written.get("server_url"):
        return None
    from tools.mcp.listing import listed_again  # it loads the MCP packages, which most requests do not need

    return listed_again(record.get("tools"), record.get("instructions"))


def _read_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call of an MCP server's tool, with its result if the item carries it or the server still has it."""
    recipient = _recipient(item, where, conversation)
    known = conversation.results.get(str(item.get("id")))
    result = known or str(item.get("output") or _error_text(item.get("error"))) or NOT_KEPT
    # The history already has an approved call: it is the one that awaited approval.
    if not conversation.was_made(item.get("approval_request_id"), result):
        arguments = _arguments(item, where)
        conversation.add(conversation.renderer.call(recipient, arguments))
        conversation.add(conversation.renderer.tool_result(recipient, result))


def _recipient(item: Item, where: str, conversation: Conversation) -> str:
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


def _arguments(item: Item, where: str) -> str:
    return json_text(item, "arguments", where) if item.get("arguments") is not None else ""


def _error_text(error: Any) -> str:
    """The text of an mcp_call's error, which is a string or an object with text parts."""
    if isinstance(error, dict):
        return text_of(error.get("content"), "error") or str(error.get("message") or "")
    return str(error or "")


def _read_request(item: Item, where: str, conversation: Conversation) -> None:
    """A call that waited for approval."""
    recipient = _recipient(item, where, conversation)
    arguments = _arguments(item, where)
    conversation.approvals[text_field(item, "id", where)] = (recipient, arguments)
    conversation.add(conversation.renderer.call(recipient, arguments))


def _read_response(item: Item, where: str, conversation: Conversation) -> None:
    """Whether such a call may run; with `approve`, it runs before the model continues."""
    request_id = text_field(item, "approval_request_id", where)
    if request_id not in conversation.approvals:
        raise InvalidRequest.at(
            f"{where}.approval_request_id",
            f": no call {request_id!r} waits for approval. Send its "
            "mcp_approval_request item too, or the previous_response_id of the response that made it.",
        )
    if not isinstance(item.get("approve"), bool):
        raise InvalidRequest.at(f"{where}.approve", "must be true or false.")
    recipient, arguments = conversation.approvals.pop(request_id)
    if item["approve"]:
        conversation.approved.append(Approved(request_id, recipient, arguments))
        return
    reason = f" Their reason: {item['reason']}" if item.get("reason") else ""
    refusal = f"The user did not approve this call, so it was not made.{reason}"
    conversation.add(conversation.renderer.tool_result(recipient, refusal))


def _read_listing(item: Item, where: str, conversation: Conversation) -> None:
    """The tools of an MCP server, which need not be listed again. The item adds nothing to the prompt."""
    conversation.add(carried(item))


MCP = ItemKind(
    items=(
        ItemType("mcp_call", _read_call, _CALL_ID, lambda item: completed(with_json_arguments(item))),
        ItemType(_LIST, _read_listing, _LIST_ID),
        ItemType("mcp_approval_request", _read_request, _REQUEST_ID, with_json_arguments),
        ItemType("mcp_approval_response", _read_response, "mcpa"),
    ),
    tools=(ToolType("mcp", _read_tool),),
)
