"""Builders of the items of calls whose shape the API fixes: shells, patches, searches for tools.

`items/builder` is the contract. The model's JSON arguments become the item's action. If they are not valid
(the engine may enforce no grammar), the item still has the shape and is incomplete.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from gpt_oss_server.apis.responses.items.client_calls import ClientCall
from gpt_oss_server.items.builder import Event, EventTexts, Item, ItemBuilder, WholeItem
from gpt_oss_server.json_values import read_json_text
from tools.tool import ToolOutput

Given = dict[str, Any]


class _ShapedCall(ClientCall):
    """A call whose arguments become the item's action; it does not stream them."""

    @abstractmethod
    def item(self, given: Given, status: str) -> Item:
        """The item with the valid ones of these arguments."""

    @abstractmethod
    def fits(self, given: Given) -> bool:
        """Whether the client can run a call with these arguments."""

    def events(self, item: Item) -> list[Event]:
        return []

    def open(self) -> tuple[Item, list[Event]]:
        return self.item({}, "in_progress"), []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        given = _object(text)
        item = self.item(given, "completed" if complete and self.fits(given) else "incomplete")
        return self.events(item), item


class LocalShellBuilder(_ShapedCall):
    about = "A call of `local_shell`, which the client runs and answers with a `local_shell_call_output`."

    def item(self, given: Given, status: str) -> Item:
        env = given.get("env")
        action: Item = {
            "type": "exec",
            "command": _strings(given.get("command")),
            "env": {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {},
        }
        action |= _known(given, timeout_ms=int, user=str, working_directory=str)
        return {
            "id": self.id,
            "type": "local_shell_call",
            "status": status,
            "call_id": self._call_id,
            "action": action,
        }

    def fits(self, given: Given) -> bool:
        return bool(_strings(given.get("command")))


class ShellBuilder(_ShapedCall):
    about = "A call of `shell`, which the client runs and answers with a `shell_call_output`."
    about_events: ClassVar[EventTexts] = {
        "response.shell_call_command.added": "A command of a shell call follows.",
        "response.shell_call_command.delta": "The command.",
        "response.shell_call_command.done": "The command is complete.",
    }

    def item(self, given: Given, status: str) -> Item:
        limits = {"timeout_ms": None, "max_output_length": None}
        return {
            "id": self.id,
            "type": "shell_call",
            "status": status,
            "call_id": self._call_id,
            "action": {
                "commands": _strings(given.get("commands")),
                **limits,
                **_known(given, timeout_ms=int, max_output_length=int),
            },
            "environment": {"type": "local"},
        }

    def fits(self, given: Given) -> bool:
        return bool(_strings(given.get("commands")))

    def events(self, item: Item) -> list[Event]:
        events: list[Event] = []
        for index, command in enumerate(item["action"]["commands"]):
            event = {"type": "response.shell_call_command", "command_index": index}
            events.append({**event, "type": f"{event['type']}.added", "command": ""})
            events += [{**event, "type": f"{event['type']}.delta", "delta": command}] if command else []
            events.append({**event, "type": f"{event['type']}.done", "command": command})
        return events


class ApplyPatchBuilder(_ShapedCall):
    """The item is added once its text is complete: clients show the operation of the added item."""

    about = "A change of a file, which the client makes and answers with an `apply_patch_call_output`."
    added_at_end = True
    _given: Given | None = None

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        self._given = _object(text)
        return self

    def open(self) -> tuple[Item, list[Event]]:
        item = self.item(self._given or {}, "in_progress")
        if "diff" in item["operation"]:
            item["operation"]["diff"] = ""
        return item, []

    def item(self, given: Given, status: str) -> Item:
        kind = given.get("type")
        kind = kind if kind in ("create_file", "delete_file") else "update_file"
        operation: Item = {"type": kind, "path": _text(given.get("path"))}
        if kind != "delete_file":
            operation["diff"] = _text(given.get("diff"))
        return {
            "id": self.id,
            "type": "apply_patch_call",
            # The API has no "incomplete" status here; an incomplete call stays in progress.
            "status": "completed" if status == "completed" else "in_progress",
            "call_id": self._call_id,
            "operation": operation,
        }

    def fits(self, given: Given) -> bool:
        needed = ("path",) if given.get("type") == "delete_file" else ("path", "diff")
        known = given.get("type") in ("create_file", "delete_file", "update_file")
        return known and all(isinstance(given.get(key), str) for key in needed)


class ToolSearchBuilder(_ShapedCall):
    """A search for tools that the client runs."""

    about = (
        "A search for deferred tools. With `execution: client`, the client runs it and answers with a "
        "`tool_search_output`."
    )
    execution = "client"

    def item(self, given: Given, status: str) -> Item:
        return {
            "id": self.id,
            "type": "tool_search_call",
            "status": status,
            "call_id": self._call_id if self.execution == "client" else None,
            "execution": self.execution,
            "arguments": given,
        }

    def fits(self, given: Given) -> bool:
        return True


class FoundTools(WholeItem):
    about = "The tools that a search of this server found."


class HostedSearchBuilder(ToolSearchBuilder):
    """A search that this server runs; the tools that it finds become a separate item after it."""

    runs_here = True
    client_runs = False
    execution = "server"

    def __init__(self, item_id: str, found_id: str, recipient: str) -> None:
        super().__init__(item_id, "", recipient)
        self.recipient = None  # the client sends no output for it
        self._found_id = found_id

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        return self.close(text, complete=True)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        found = {
            "id": self._found_id,
            "type": "tool_search_output",
            "status": "completed",
            "call_id": None,
            "execution": "server",
            "tools": list(output.details.get("tools", ())),
        }
        return [FoundTools(found)]


def _object(text: str) -> Given:
    try:
        given = read_json_text(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _strings(given: Any) -> list[str]:
    whole = isinstance(given, list) and all(isinstance(each, str) for each in given)
    return list(given) if whole else []


def _text(given: Any) -> str:
    return given if isinstance(given, str) else ""


def _known(given: Given, **kinds: type) -> Given:
    """The values that are present and of the right type."""
    return {key: given[key] for key, kind in kinds.items() if type(given.get(key)) is kind}
