"""Builders of the items for calls that run here: the browser, python and MCP servers.

`item_builder` is the contract. The events of `called` are sent before the tool runs, those of `answered`
after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_oss_server.constraints.model_json import read_json_text
from gpt_oss_server.item_builder import Event, Item, ItemBuilder, WholeItem
from tools.tool import ToolOutput


class WebSearchBuilder(ItemBuilder):
    """A call of the browser. Its action is a guess from the arguments until the browser has answered."""

    runs_here = True

    def __init__(self, item_id: str, function: str, include: frozenset[str]) -> None:
        super().__init__(item_id)
        self._function = function
        self._include = include

    def _item(self, status: str, action: Mapping[str, Any]) -> Item:
        shown = dict(action)
        if "web_search_call.action.sources" not in self._include:
            shown.pop("sources", None)
        return {"id": self.id, "type": "web_search_call", "status": status, "action": shown}

    def open(self) -> tuple[Item, list[Event]]:
        item = self._item("in_progress", _guess(self._function, ""))
        return item, [{"type": "response.web_search_call.in_progress"}]

    def called(self, text: str) -> list[Event]:
        return [{"type": "response.web_search_call.searching"}]

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        action = output.details.get("action") or _guess(self._function, text)
        item = self._item("failed" if output.failed else "completed", action)
        if "web_search_call.results" in self._include and "results" in output.details:
            item["results"] = output.details["results"]
        return [{"type": "response.web_search_call.completed"}], item

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [], self._item("failed", _guess(self._function, text))


def _guess(function: str, arguments: str) -> dict[str, Any]:
    """The action as far as the arguments tell it, in a form that every client can read."""
    try:
        given = read_json_text(arguments)
    except ValueError:
        given = None
    known: dict[str, Any] = given if isinstance(given, dict) else {}

    def text(key: str) -> str:
        value = known.get(key)
        return value if isinstance(value, str) else ""

    match function:
        case "open":
            return {"type": "open_page", **({"url": text("id")} if "://" in text("id") else {})}
        case "find":
            return {"type": "find_in_page", "pattern": text("pattern"), "url": ""}
        case _:
            return {"type": "search", "query": text("query") or (arguments if given is None else "")}


class CodeInterpreterBuilder(ItemBuilder):
    """A call of python. Its code streams."""

    runs_here = True

    def __init__(self, item_id: str, container_id: str, include: frozenset[str]) -> None:
        super().__init__(item_id)
        self._container_id = container_id
        self._shows_outputs = "code_interpreter_call.outputs" in include
        self._called = False

    def _item(self, status: str, code: str) -> Item:
        return {
            "id": self.id,
            "type": "code_interpreter_call",
            "status": status,
            "code": code,
            "container_id": self._container_id,
            "outputs": None,
        }

    def open(self) -> tuple[Item, list[Event]]:
        return self._item("in_progress", ""), [{"type": "response.code_interpreter_call.in_progress"}]

    def delta(self, text: str) -> tuple[Event, ...]:
        return ({"type": "response.code_interpreter_call_code.delta", "delta": text},)

    def called(self, text: str) -> list[Event]:
        self._called = True
        return [_code_done(text), {"type": "response.code_interpreter_call.interpreting"}]

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        item = self._item("failed" if output.failed else "completed", text)
        if self._shows_outputs:
            item["outputs"] = list(output.details.get("outputs", ()))
        return [{"type": "response.code_interpreter_call.completed"}], item

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [] if self._called else [_code_done(text)], self._item("incomplete", text)


def _code_done(text: str) -> Event:
    return {"type": "response.code_interpreter_call_code.done", "code": text}


class McpCallBuilder(ItemBuilder):
    """A call of an MCP server's tool, or of a tool that has no item of its own."""

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
            item["output"] = output.details.get("output") or output.text  # what the model read may be shorter
        return [{"type": f"response.mcp_call.{status}"}], item

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        if self._called:  # and stopped before it had answered
            stopped = _tool_error("The call was stopped before it had answered.")
            return [{"type": "response.mcp_call.failed"}], {**self._item("failed", text), "error": stopped}
        done = {"type": "response.mcp_call_arguments.done", "arguments": text}
        return [done], self._item("incomplete", text)


def _tool_error(text: str) -> dict[str, Any]:
    """The form that clients read, whether the server or the tool failed."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


class McpApprovalBuilder(ItemBuilder):
    """A call that waits for the client's approval; it ends the turn.

    A call that was cut off must not be approved: it becomes the item of an incomplete call.
    """

    added_at_end = True
    asks_approval = True

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

    def open(self) -> tuple[Item, list[Event]]:
        listed = "failed" if "error" in self._item else "completed"
        steps: list[Event] = [{"type": f"response.mcp_list_tools.{step}"} for step in ("in_progress", listed)]
        return {**self._item, "tools": []}, steps
