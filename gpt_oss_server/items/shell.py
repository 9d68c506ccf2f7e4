"""The shell: several commands at a time, which the client runs, and the skills that it may read.

Takes the declared tool, or a call and its output of a request, or JSON as the model writes it. Returns a
`ClientTool`, segments, or the item and its events.
"""

from typing import ClassVar

from gpt_oss_server.content.tools import RequestTools, Tool, check, described, object_schema, shaped_tool
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.items.builder import (
    Event,
    EventTexts,
    Item,
    ShapedCall,
    strings,
    typed,
)
from gpt_oss_server.items.kind import completed, shaped_kind

_LIMITS: Item = {"timeout_ms": None, "max_output_length": None}


class ShellBuilder(ShapedCall):
    prefix = "sh"
    about = "A call of `shell`, which the client runs and answers with a `shell_call_output`."
    about_events: ClassVar[EventTexts] = {
        "response.shell_call_command.added": "A command of a shell call follows.",
        "response.shell_call_command.delta": "The command.",
        "response.shell_call_command.done": "The command is complete.",
    }

    def item(self, arguments: Item, status: str) -> Item:
        return {
            "id": self.id,
            "type": "shell_call",
            "status": status,
            "call_id": self._call_id,
            "action": {
                "commands": strings(arguments.get("commands")),
                **_LIMITS,
                **typed(arguments, timeout_ms=int, max_output_length=int),
            },
            "environment": {"type": "local"},
        }

    def fits(self, arguments: Item) -> bool:
        return bool(strings(arguments.get("commands")))

    def events(self, item: Item) -> list[Event]:
        events: list[Event] = []
        for index, command in enumerate(item["action"]["commands"]):
            event = {"type": "response.shell_call_command", "command_index": index}
            events.append({**event, "type": f"{event['type']}.added", "command": ""})
            events += [{**event, "type": f"{event['type']}.delta", "delta": command}] if command else []
            events.append({**event, "type": f"{event['type']}.done", "command": command})
        return events


_LINES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DESCRIPTION = "Runs shell commands on the user's machine and returns what each wrote and its exit code."
_ARGUMENTS = object_schema(
    ["commands"],
    commands={**_LINES, "description": 'One or more lines for the shell, e.g. ["ls -l"].'},
    timeout_ms=described("integer", "The most milliseconds they may take."),
    max_output_length=described("integer", "The most characters of output to return."),
)


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """A tool that the client runs, whose shape the API fixes."""
    environment = tool.get("environment")
    if environment is not None:
        check(tool, where, "environment", dict, "an object")
        if environment.get("type") != "local":
            raise UnsupportedField(
                f"`{where}.environment`: this server runs no shell; the client does. "
                "Use {'type': 'local'}, or the code_interpreter tool.",
                param=f"{where}.environment",
            )
    skills = _skills(environment or {}, f"{where}.environment.skills")
    tools.declare(shaped_tool(tool, where, _DESCRIPTION + skills, _ARGUMENTS))


_SKILLS = "Skills (read the SKILL.md in a skill's folder before you use it):"


def _skills(environment: Tool, where: str) -> str:
    """The prompt's list of skills; the model reads a whole skill at its path."""
    listed = environment.get("skills") or []
    if not isinstance(listed, list):
        raise InvalidRequest(f"`{where}` must be a list.", param=where)
    lines = []
    for index, skill in enumerate(listed):
        parts = [
            skill.get(key) if isinstance(skill, dict) else None for key in ("name", "path", "description")
        ]
        if not all(isinstance(part, str) and part.strip() for part in parts):
            raise InvalidRequest(
                f"`{where}[{index}]` must be an object with name, description and path.",
                param=f"{where}[{index}]",
            )
        lines.append("- {} ({}): {}".format(*parts))
    return "\n".join(["", _SKILLS, *lines]) if lines else ""


def _listed_call(item: Item) -> Item:
    item = completed({"environment": None, **item})
    return {**item, "action": {**_LIMITS, **item["action"]}}


SHELL = shaped_kind(
    "shell",
    "action",
    ShellBuilder,
    "sho",
    _read_tool,
    listed=_listed_call,
    listed_output=lambda item: completed({"max_output_length": None, **item}),
)
