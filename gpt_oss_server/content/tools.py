"""The tools that a request declares: each tool that the client runs, and all tools read so far.

Takes the fields of one tool, and its place in the body. Returns a `ClientTool` with its recipient and the
form that binds its calls, or raises a 400 that names the field. `RequestTools` collects the tools of a
request. It must not know the kinds of tools, how calls are rendered, or whether a tool of the server is
available.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.constraints.wanted import ClientCall, Schema, TextGrammar
from gpt_oss_server.content.nested import Fields, check_flat
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.declarations import FUNCTIONS, FunctionTool, ToolNamespace

Tool = dict[str, Any]
ANY_OBJECT: Tool = {"type": "object"}

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs."""

    kind: str  # its `type`
    name: str  # as the client wrote it
    recipient: str
    declared: FunctionTool
    form: Schema | TextGrammar | None = None  # binds the body of a call
    namespace: str | None = None  # as the client wrote it
    echo: Mapping[str, Any] = field(default_factory=dict)  # the tool as responses show it
    deferred: bool = False  # the prompt declares it only after a search finds it

    @property
    def call(self) -> ClientCall:
        return ClientCall(self.recipient, self.form, raw=self.kind == "custom")


@dataclass(slots=True)
class RequestTools:
    """The tools read so far. Nothing changes it after the last tool."""

    clients: dict[str, ClientTool] = field(default_factory=dict)  # by recipient
    programs: dict[str, ClientTool] = field(default_factory=dict)  # those that programs call, by recipient
    spaces: dict[str, str | None] = field(default_factory=dict)  # namespace in recipients → description
    hosted: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # namespace → the tool's options
    optional: set[str] = field(default_factory=set)  # namespaces that the request can do without
    servers: list[tuple[str, Tool]] = field(default_factory=list)  # (where, MCP tool as written)
    echo: list[Tool] = field(default_factory=list)
    not_at_head: set[str] = field(default_factory=set)  # recipients that the prompt declares later or never
    listings: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # server label → its earlier list
    of_items: dict[str, RequestTools] = field(default_factory=dict)  # place of an input item → its tools
    offered: bool = True  # false for tool_choice "none": checked and echoed, but not in the prompt

    @property
    def offered_clients(self) -> Mapping[str, ClientTool]:
        return self.clients if self.offered else {}

    @property
    def functions(self) -> list[FunctionTool]:
        """The tools that the prompt declares under `functions`."""
        return self._declared().get(FUNCTIONS, [])

    @property
    def namespaces(self) -> tuple[ToolNamespace, ...]:
        """The tools that the prompt declares under other namespaces."""
        declared = self._declared()
        words = [word for word in self.spaces if word in declared]
        return tuple(ToolNamespace(word, self.spaces[word], tuple(declared[word])) for word in words)

    @property
    def calls(self) -> list[ClientCall]:
        return [tool.call for tool in self.offered_clients.values()]

    def add_echo(self, tool: Tool) -> None:
        """Drops keys with null values, except for functions, which keep every key."""
        self.echo.append(dict(tool) if tool.get("type") == "function" else without_nulls(tool))

    def declare(self, tool: ClientTool) -> None:
        """Adds the tool and its echo."""
        self.add(tool)
        self.add_echo(dict(tool.echo))

    def add(self, tool: ClientTool) -> None:
        if tool.recipient in self.clients:
            raise InvalidRequest.at("tools", f"declares {tool.name!r} twice; names must be unique.")
        self.clients[tool.recipient] = tool

    def load(self, more: RequestTools, *, at_head: bool) -> None:
        """Adds tools from the conversation's items, declared at its head or at their item."""
        self.clients |= more.clients
        added = set(more.clients)
        (self.not_at_head.difference_update if at_head else self.not_at_head.update)(added)
        self.spaces |= {word: about or self.spaces.get(word) for word, about in more.spaces.items()}
        self.hosted |= more.hosted
        self.servers += more.servers

    @property
    def deferred(self) -> list[ClientTool]:
        """The tools that the prompt declares only after a search finds them."""
        return [tool for tool in self.clients.values() if tool.deferred]

    def _declared(self) -> dict[str, list[FunctionTool]]:
        """By their namespace."""
        declared: dict[str, list[FunctionTool]] = {}
        for recipient, tool in self.offered_clients.items():
            if recipient not in self.not_at_head:
                declared.setdefault(recipient.partition(".")[0], []).append(tool.declared)
        return declared


def recipient_of(name: str, namespace: str | None) -> str:
    """The recipient of a client's tool, from the client's names for it."""
    return f"{namespace_word(namespace)}.{name}"


def namespace_word(namespace: str | None) -> str:
    """The namespace in recipients, which never collides with a built-in namespace."""
    if not namespace:
        return FUNCTIONS
    from tools.mcp.names import safe_namespace

    return safe_namespace(namespace)


def named_tool(
    kind: str,
    tool: Fields,
    namespace: str | None,
    declared: FunctionTool,
    form: Schema | TextGrammar | None,
    echo: Tool,
) -> ClientTool:
    """A tool whose name the client chose."""
    name, deferred = declared.name, tool.get("defer_loading") is True
    return ClientTool(kind, name, recipient_of(name, namespace), declared, form, namespace, echo, deferred)


def shaped_tool(
    tool: Tool, where: str, description: str, arguments: Tool, *, enforced: Tool | None = None
) -> ClientTool:
    """A tool whose arguments the API fixes. `enforced` is a stricter schema than that in the prompt."""
    kind = tool["type"]
    declared = FunctionTool(kind, description, arguments)
    form = Schema(enforced or arguments, where)
    return ClientTool(kind, kind, recipient_of(kind, None), declared, form, echo=tool)


def object_schema(required: list[str], **properties: Any) -> Tool:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def described(kind: str, description: str) -> Tool:
    return {"type": kind, "description": description}


def tool_name(tool: Fields, where: str) -> str:
    check_flat(tool, where, "name")
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidRequest.at(f"{where}.name", "must be 1 to 128 letters, digits, '_', '-' or '.'.")
    return name


def without_nulls(tool: Fields) -> Tool:
    return {key: value for key, value in tool.items() if value is not None}


def check(tool: Fields, where: str, key: str, kind: type, expected: str) -> None:
    value = tool.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest.at(f"{where}.{key}", f"must be {expected}.")
