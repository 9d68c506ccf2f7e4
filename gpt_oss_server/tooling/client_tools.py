"""The tools that a client runs: how the prompt declares each, and what binds its calls.

In: one tool as the client wrote it, its place in the body, and the dialect of the API. Out: a `ClientTool`
with the recipient that the model calls it by and the kind of item that its calls become, or a 400 that names
the field. This module does not know how calls are rendered, how items are built, or how tools are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpt_oss_server.constraints.binding import ClientCall, Schema, TextGrammar
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.declarations import FUNCTIONS, FunctionTool
from gpt_oss_server.tooling.dialect import FLAT, Dialect, Fields, NamedKind

Tool = dict[str, Any]
Kind = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]
SEARCH = "tool_search"
ANY_OBJECT: Tool = {"type": "object"}

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_RAW = "Call it with the text itself, not as JSON."


@dataclass(frozen=True, slots=True)
class ClientTool:
    kind: Kind
    name: str  # as the client wrote it, as is the namespace
    recipient: str
    declared: FunctionTool
    form: Schema | TextGrammar | None = None  # what binds the body of a call
    namespace: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # as it is told back to the client
    deferred: bool = False  # to be found by a search

    @property
    def call(self) -> ClientCall:
        return ClientCall(self.recipient, self.form, raw=self.kind == "custom")


def recipient_of(name: str, namespace: str | None) -> str:
    """The recipient of a client's tool, by the names that the client has for it."""
    return f"{namespace_word(namespace)}.{name}"


def namespace_word(namespace: str | None) -> str:
    """A namespace as recipients carry it, out of the way of every built-in."""
    if not namespace:
        return FUNCTIONS
    from tools.mcp.names import safe_namespace

    return safe_namespace(namespace)


def function_tool(
    given: Fields, where: str, namespace: str | None = None, *, dialect: Dialect = FLAT
) -> ClientTool:
    tool, where = dialect.tool(given, where, "function")
    name = _name(tool, where)
    check(tool, where, "description", str, "a string")
    check(tool, where, "parameters", dict, "a JSON schema object")
    check(tool, where, "strict", bool, "a boolean")
    declared = FunctionTool(name, tool.get("description"), tool.get("parameters"), tool.get("strict"))
    form = Schema(declared.parameters or ANY_OBJECT, f"{where}.parameters") if declared.strict else None
    return _client_tool("function", tool, namespace, declared, form)


def custom_tool(
    given: Fields, where: str, namespace: str | None = None, *, dialect: Dialect = FLAT
) -> ClientTool:
    tool, where = dialect.tool(given, where, "custom")
    name = _name(tool, where)
    check(tool, where, "description", str, "a string")
    check(tool, where, "format", dict, "an object")
    form = _text_form(tool.get("format") or {"type": "text"}, f"{where}.format", dialect)
    lines = [tool.get("description"), _RAW, _rule_of(form)]
    declared = FunctionTool(name, "\n".join(line for line in lines if line), {"type": "string"})
    return _client_tool("custom", tool, namespace, declared, form)


def _client_tool(
    kind: NamedKind,
    tool: Fields,
    namespace: str | None,
    declared: FunctionTool,
    form: Schema | TextGrammar | None,
) -> ClientTool:
    return ClientTool(
        kind=kind,
        name=declared.name,
        recipient=recipient_of(declared.name, namespace),
        declared=declared,
        form=form,
        namespace=namespace,
        given=_echoed(kind, tool),
        deferred=tool.get("defer_loading") is True,
    )


def without_nulls(tool: Fields) -> Tool:
    return {key: value for key, value in tool.items() if value is not None}


def _echoed(kind: NamedKind, tool: Fields) -> Tool:
    if kind == "custom":
        return {**without_nulls(tool), "type": kind, "format": tool.get("format") or {"type": "text"}}
    given = {key: tool.get(key) for key in ("description", "parameters", "strict")}
    more = {"defer_loading": True} if tool.get("defer_loading") is True else {}
    return {"type": "function", "name": tool["name"], **given, **more}


def _text_form(given: Fields, where: str, dialect: Dialect) -> TextGrammar | None:
    kind, fields, where = dialect.text_format(given, where)
    match kind:
        case "text":
            return None
        case "grammar":
            syntax, definition = fields.get("syntax"), fields.get("definition")
            if syntax not in ("lark", "regex"):
                raise InvalidRequest(
                    f"`{where}.syntax` must be 'lark' or 'regex', not {syntax!r:.80}.",
                    param=f"{where}.syntax",
                )
            if not isinstance(definition, str) or not definition:
                raise InvalidRequest(
                    f"`{where}.definition` must be a non-empty string.", param=f"{where}.definition"
                )
            return TextGrammar(syntax, definition, f"{where}.definition")
        case _:
            raise InvalidRequest(
                f"`{where}.type` must be 'text' or 'grammar', not {kind!r:.80}.", param=f"{where}.type"
            )


def _rule_of(form: TextGrammar | None) -> str | None:
    """The grammar as the prompt states it."""
    if form is None:
        return None
    if form.syntax == "regex":
        return f"The text must match this regular expression as a whole: {form.definition}"
    return f"The text must follow this Lark grammar:\n{form.definition}"


def client_shape(tool: Tool, where: str) -> ClientTool:
    """A tool whose calls have a shape that the API fixes, and which the client runs all the same."""
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
    description, parameters = SHAPES[kind]
    skills = _skills(environment or {}, f"{where}.environment.skills") if kind == "shell" else ""
    declared = FunctionTool(kind, description + skills, parameters)
    form = Schema(_ENFORCED.get(kind, parameters), where)
    return ClientTool(kind, kind, recipient_of(kind, None), declared, form, given=tool)


_SKILLS = "Skills (read the SKILL.md in a skill's folder before you use it):"


def _skills(environment: Tool, where: str) -> str:
    """What the model is told of them: what they say in full, it reads where they are."""
    given = environment.get("skills") or []
    if not isinstance(given, list):
        raise InvalidRequest(f"`{where}` must be a list.", param=where)
    told = []
    for index, skill in enumerate(given):
        parts = [
            skill.get(key) if isinstance(skill, dict) else None for key in ("name", "path", "description")
        ]
        if not all(isinstance(part, str) and part.strip() for part in parts):
            raise InvalidRequest(
                f"`{where}[{index}]` must be an object with name, description and path.",
                param=f"{where}[{index}]",
            )
        told.append("- {} ({}): {}".format(*parts))
    return "\n".join(["", _SKILLS, *told]) if told else ""


def search_tool(tool: Tool, where: str) -> ClientTool:
    """The search for deferred tools, be it run by the client or here."""
    check(tool, where, "description", str, "a string")
    check(tool, where, "parameters", dict, "a JSON schema object")
    if tool.get("execution") not in (None, "server", "client"):
        raise InvalidRequest(f"`{where}.execution` must be 'server' or 'client'.", param=f"{where}.execution")
    declared = FunctionTool(SEARCH, tool.get("description"), tool.get("parameters") or _SEARCHED)
    return ClientTool("tool_search", SEARCH, recipient_of(SEARCH, None), declared, given=tool)


def _name(tool: Fields, where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidRequest(
            f"`{where}.name` must be 1 to 128 letters, digits, '_', '-' or '.'.", param=f"{where}.name"
        )
    return name


def check(tool: Fields, where: str, key: str, kind: type, expected: str) -> None:
    value = tool.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(f"`{where}.{key}` must be {expected}.", param=f"{where}.{key}")


def _object(required: list[str], **properties: Any) -> Tool:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _said(kind: str, description: str) -> Tool:
    return {"type": kind, "description": description}


_SEARCHED = _object(
    [],
    paths={
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of tools and namespaces to load.",
    },
    query=_said("string", "Words that say what the tool should do."),
)
_PATH = _said("string", "Relative to the workspace.")
_DIFF = _said("string", "For create_file, each line of the file after a '+'. For update_file, hunks.")
_LINES = {"type": "array", "items": {"type": "string"}, "minItems": 1}

SHAPES: dict[str, tuple[str, Tool]] = {
    "local_shell": (
        "Runs a command on the user's machine and returns its output.",
        _object(
            ["command"],
            command={**_LINES, "description": 'The program and its arguments, e.g. ["bash", "-lc", "ls"].'},
            working_directory=_said("string", "Where to run it."),
            timeout_ms=_said("integer", "The most milliseconds it may take."),
            env={"type": "object", "additionalProperties": {"type": "string"}},
            user=_said("string", "The user to run it as."),
        ),
    ),
    "shell": (
        "Runs shell commands on the user's machine and returns what each wrote and its exit code.",
        _object(
            ["commands"],
            commands={**_LINES, "description": 'One or more lines for the shell, e.g. ["ls -l"].'},
            timeout_ms=_said("integer", "The most milliseconds they may take."),
            max_output_length=_said("integer", "The most characters of output to return."),
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
"""What the model is told of them, and their arguments, which are the item's action (or operation)."""

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
"""Where what binds a call is narrower than what the model is told."""
