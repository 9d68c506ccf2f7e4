"""Patches: changes of one file at a time, which the client makes.

Takes the declared tool, or a call and its output of a request, or JSON as the model writes it. Returns a
`ClientTool`, segments, or the item and its events.
"""

from typing import Any

from gpt_oss_server.content.tools import RequestTools, Tool, described, object_schema, shaped_tool
from gpt_oss_server.items.builder import Event, Item, ItemBuilder, ShapedCall, json_object
from gpt_oss_server.items.kind import shaped_kind


class ApplyPatchBuilder(ShapedCall):
    """The item is added once its text is complete: clients show the operation of the added item."""

    prefix = "apc"
    about = "A change of a file, which the client makes and answers with an `apply_patch_call_output`."
    added_at_end = True
    _arguments: Item | None = None

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        self._arguments = json_object(text)
        return self

    def open(self) -> tuple[Item, list[Event]]:
        item = self.item(self._arguments or {}, "in_progress")
        if "diff" in item["operation"]:
            item["operation"]["diff"] = ""
        return item, []

    def item(self, arguments: Item, status: str) -> Item:
        kind = arguments.get("type")
        kind = kind if kind in ("create_file", "delete_file") else "update_file"
        operation: Item = {"type": kind, "path": _text(arguments.get("path"))}
        if kind != "delete_file":
            operation["diff"] = _text(arguments.get("diff"))
        return {
            "id": self.id,
            "type": "apply_patch_call",
            # The API has no "incomplete" status here; an incomplete call stays in progress.
            "status": "completed" if status == "completed" else "in_progress",
            "call_id": self._call_id,
            "operation": operation,
        }

    def fits(self, arguments: Item) -> bool:
        needed = ("path",) if arguments.get("type") == "delete_file" else ("path", "diff")
        known = arguments.get("type") in ("create_file", "delete_file", "update_file")
        return known and all(isinstance(arguments.get(key), str) for key in needed)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_DESCRIPTION = (
    "Creates, updates or deletes one file. A hunk of an update begins with a line '@@', or '@@ ' and a "
    "line of the file above it (a class, a function); its lines begin with ' ' if they stay, '-' if they "
    "go and '+' if they are new, with about three that stay before and after."
)
_DIFF = "For create_file, each line of the file after a '+'. For update_file, hunks."
_ARGUMENTS = object_schema(
    ["type", "path"],
    type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
    path=described("string", "Relative to the workspace."),
    diff=described("string", _DIFF),
)
_ENFORCED: Tool = {
    "anyOf": [
        object_schema(
            ["type", "path", "diff"],
            type={"enum": ["create_file", "update_file"]},
            path={"type": "string"},
            diff={"type": "string"},
        ),
        object_schema(["type", "path"], type={"const": "delete_file"}, path={"type": "string"}),
    ]
}
"""Stricter than the schema in the prompt."""


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """A tool that the client runs, whose shape the API fixes."""
    tools.declare(shaped_tool(tool, where, _DESCRIPTION, _ARGUMENTS, enforced=_ENFORCED))


APPLY_PATCH = shaped_kind("apply_patch", "operation", ApplyPatchBuilder, "apco", _read_tool)
