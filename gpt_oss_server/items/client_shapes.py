"""Client tools whose calls have a shape that the API fixes: shells, patches, and tool search.

Takes such a tool as the client wrote it, and its place in the body. Returns a `ClientTool`, whose arguments
are the item's action (or operation), or raises a 400 that names the field. The client runs these tools like
its functions; the server can also run the search.
"""

from __future__ import annotations

from typing import Any

from gpt_oss_server.constraints.wanted import Schema
from gpt_oss_server.content.tools import SEARCH, ClientTool, Tool, check, recipient_of
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.declarations import FunctionTool


def client_shape(tool: Tool, where: str) -> ClientTool:
    """Reads a shell or the patch tool."""
    kind = tool["type"]
    environment = tool.get("environment")
    if kind == "shell" and environment is not None:
        check(tool, where, "environment", dict, "an object")
        if environment.get("type") != "local":
            raise UnsupportedField(
                f"`{where}.environment`: this server runs no shell; the client does. "
                "Use {'type': 'local'}, or the code_interpreter tool.",
                param=f"{where}.environment",
            )
    description, parameters = _SHAPES[kind]
    skills = _skills(environment or {}, f"{where}.environment.skills") if kind == "shell" else ""
    declared = FunctionTool(kind, description + skills, parameters)
    form = Schema(_ENFORCED.get(kind, parameters), where)
    return ClientTool(kind, kind, recipient_of(kind, None), declared, form, given=tool)


_SKILLS = "Skills (read the SKILL.md in a skill's folder before you use it):"


def _skills(environment: Tool, where: str) -> str:
    """The prompt's list of skills; the model reads a whole skill at its path."""
    given = environment.get("skills") or []
    if not isinstance(given, list):
        raise InvalidRequest(f"`{where}` must be a list.", param=where)
    lines = []
    for index, skill in enumerate(given):
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


def search_tool(tool: Tool, where: str) -> ClientTool:
    """The search for deferred tools, which the client or the server runs."""
    check(tool, where, "description", str, "a string")
    check(tool, where, "parameters", dict, "a JSON schema object")
    if tool.get("execution") not in (None, "server", "client"):
        raise InvalidRequest(f"`{where}.execution` must be 'server' or 'client'.", param=f"{where}.execution")
    declared = FunctionTool(SEARCH, tool.get("description"), tool.get("parameters") or _SEARCH_ARGUMENTS)
    return ClientTool("tool_search", SEARCH, recipient_of(SEARCH, None), declared, given=tool)


def _object(required: list[str], **properties: Any) -> Tool:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _described(kind: str, description: str) -> Tool:
    return {"type": kind, "description": description}


_SEARCH_ARGUMENTS = _object(
    [],
    paths={
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of tools and namespaces to load.",
    },
    query=_described("string", "Words that say what the tool should do."),
)
_PATH = _described("string", "Relative to the workspace.")
_DIFF = _described("string", "For create_file, each line of the file after a '+'. For update_file, hunks.")
_LINES = {"type": "array", "items": {"type": "string"}, "minItems": 1}

_SHAPES: dict[str, tuple[str, Tool]] = {
    "local_shell": (
        "Runs a command on the user's machine and returns its output.",
        _object(
            ["command"],
            command={**_LINES, "description": 'The program and its arguments, e.g. ["bash", "-lc", "ls"].'},
            working_directory=_described("string", "Where to run it."),
            timeout_ms=_described("integer", "The most milliseconds it may take."),
            env={"type": "object", "additionalProperties": {"type": "string"}},
            user=_described("string", "The user to run it as."),
        ),
    ),
    "shell": (
        "Runs shell commands on the user's machine and returns what each wrote and its exit code.",
        _object(
            ["commands"],
            commands={**_LINES, "description": 'One or more lines for the shell, e.g. ["ls -l"].'},
            timeout_ms=_described("integer", "The most milliseconds they may take."),
            max_output_length=_described("integer", "The most characters of output to return."),
        ),
    ),
    "apply_patch": (
        "Creates, updates or deletes one file. A hunk of an update begins with a line '@@', or '@@ ' and a "
        "line of the file above it (a class, a function); its lines begin with ' ' if they stay, '-' if they "
        "go and '+' if they are new, with about three that stay before and after.",
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_PATH,
            diff=_DIFF,
        ),
    ),
}
"""Descriptions and arguments in the prompt, by type."""

_ENFORCED: dict[str, Tool] = {
    "apply_patch": {
        "anyOf": [
            _object(
                ["type", "path", "diff"],
                type={"enum": ["create_file", "update_file"]},
                path={"type": "string"},
                diff={"type": "string"},
            ),
            _object(["type", "path"], type={"const": "delete_file"}, path={"type": "string"}),
        ]
    }
}
"""Schemas that are stricter than those in the prompt."""
