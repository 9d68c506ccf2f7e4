"""Builders of MCP items: calls, requests for approval and lists of tools.

`items/builder` is the contract. The events of `called` are sent before the tool runs, those of `answered`
afterwards.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gpt_oss_server.items.builder import Event, EventTexts, Item, ItemBuilder, WholeItem
from tools.tool import ToolOutput


class McpCallBuilder(ItemBuilder):
    """A call of an MCP server's tool, or of a tool that has no item of its own."""

    about = "A call of an MCP server's tool, with its `output` or its `error`."
    about_events: ClassVar[EventTexts] = {
        "response.mcp_call.in_progress": "A call of an MCP server's tool begins.",
        "response.mcp_call_arguments.delta": "More of the call's arguments.",
        "response.mcp_call_arguments.done": "The arguments are complete; the tool runs.",
        "response.mcp_call.completed": "The tool has answered.",
        "response.mcp_call.failed": "The tool failed, or was stopped.",
    }
    runs_here = True

    def __init__(self, item_id: str, server_label: str, name: str, approval: str | None = None) -> None:
        super().__init__(item_id)
        self._label = server_label
        self._name = name
        self._approval = {"approval_request_id": approval} if approval else {}
        self._called = False

    def _item(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "mcp_call",
            "status": status,
            "server_label": self._label,
            "name": self._name,
            "arguments": arguments,
            **self._approval,
        }

    def open(self) -> tuple[Item, list[Event]]:
        return self._item("in_progress", ""), [{"type": "response.mcp_call.in_progress"}]

    def delta(self, text: str) -> tuple[Event, ...]:
        return ({"type": "response.mcp_call_arguments.delta", "delta": text},)

    def called(self, text: str) -> list[Event]:
        self._called = True
        return [{"type": "response.mcp_call_arguments.done", "arguments": text}]

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        status = "failed" if output.failed else "completed"
        item = self._item(status, text)
        if output.failed:
            item["error"] = _tool_error(output.details.get("error") or output.text)
        else:
            item["output"] = output.details.get("output") or output.text  # the model may have read less
        return [{"type": f"response.mcp_call.{status}"}], item

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        if self._called:  # the tool was stopped while it ran
            stopped = _tool_error("The call was stopped before it had answered.")
            return [{"type": "response.mcp_call.failed"}], {**self._item("failed", text), "error": stopped}
        done = {"type": "response.mcp_call_arguments.done", "arguments": text}
        return [done], self._item("incomplete", text)


def _tool_error(text: str) -> dict[str, Any]:
    """The form that clients read, for failures of the server and of the tool alike."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


class McpApprovalBuilder(ItemBuilder):
    """A call that waits for the client's approval; it ends the turn.

    A call that was cut off must not be approved: it becomes the item of an incomplete call.
    """

    about = "A call that waits for the client's `mcp_approval_response`."
    added_at_end = True
    requests_approval = True

    def __init__(self, item_id: str, server_label: str, name: str, cut_off: McpCallBuilder) -> None:
        super().__init__(item_id)
        self._cut_off = cut_off
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
