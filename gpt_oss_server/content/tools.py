"""The tools that a client runs: their declarations in the prompt, and the forms that bind their calls.

Takes one tool as the client wrote it, its place in the body, and the dialect of the API. Returns a
`ClientTool` with its recipient and the kind of item that its calls become, or raises a 400 that names the
field. It must not know how calls are rendered, how items are built, or how tools are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpt_oss_server.constraints.wanted import ClientCall, Schema, TextGrammar
from gpt_oss_server.content.dialect import FLAT, Dialect, Fields, NamedKind
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.declarations import FUNCTIONS, FunctionTool

Tool = dict[str, Any]
Kind = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]
SEARCH = "tool_search"
ANY_OBJECT: Tool = {"type": "object"}

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_RAW = "Call it with the text itself, not as JSON."


@dataclass(frozen=True, slots=True)
class ClientTool:
    kind: Kind
    name: str  # as the client wrote it
    recipient: str
    declared: FunctionTool
    form: Schema | TextGrammar | None = None  # binds the body of a call
    namespace: str | None = None  # as the client wrote it
    given: Mapping[str, Any] = field(default_factory=dict)  # the tool as responses echo it
    deferred: bool = False  # the prompt declares it only after a search finds it

    @property
    def call(self) -> ClientCall:
        return ClientCall(self.recipient, self.form, raw=self.kind == "custom")


def recipient_of(name: str, namespace: str | None) -> str:
    """The recipient of a client's tool, from the client's names for it."""
    return f"{namespace_word(namespace)}.{name}"


def namespace_word(namespace: str | None) -> str:
    """The namespace in recipients, which never collides with a built-in namespace."""
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
    """The prompt's sentence about the grammar."""
    if form is None:
        return None
    if form.syntax == "regex":
        return f"The text must match this regular expression as a whole: {form.definition}"
    return f"The text must follow this Lark grammar:\n{form.definition}"


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
