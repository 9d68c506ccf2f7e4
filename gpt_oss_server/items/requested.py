"""Reads the tools of a request: those that the client runs, those that the server hosts, and their echo.

Takes each declared tool, its place in the body, and the dialect of the API. Returns the client's tools by
recipient, the hosted tools with their options, and the echo with every key that clients read, or raises a 400
that names an unknown kind of tool. It must not know whether a hosted tool is available.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.constraints.wanted import ClientCall
from gpt_oss_server.content.dialect import FLAT, Dialect, Fields
from gpt_oss_server.content.tools import (
    SEARCH,
    ClientTool,
    Tool,
    check,
    custom_tool,
    function_tool,
    namespace_word,
    recipient_of,
    without_nulls,
)
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable, UnsupportedField
from gpt_oss_server.harmony.declarations import FUNCTIONS, FunctionTool, ToolNamespace
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.items.client_shapes import client_shape, search_tool
from gpt_oss_server.items.listings import Record
from gpt_oss_server.items.search import ToolSearch, search_description
from gpt_oss_server.items.table import BY_TYPE
from tools.extras import how_to_install


@dataclass(slots=True)
class RequestTools:
    """The tools read so far. Nothing changes it after the last tool."""

    clients: dict[str, ClientTool] = field(default_factory=dict)  # by recipient
    spaces: dict[str, str | None] = field(default_factory=dict)  # namespace in recipients → description
    hosted: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # namespace → the tool's options
    optional: set[str] = field(default_factory=set)  # namespaces that the request can do without
    servers: list[tuple[str, Tool]] = field(default_factory=list)  # (where, MCP tool as written)
    echo: list[Tool] = field(default_factory=list)
    not_at_head: set[str] = field(default_factory=set)  # recipients that the prompt declares later or never
    listings: dict[str, Record] = field(default_factory=dict)  # server label → its tools, listed earlier
    of_items: dict[str, RequestTools] = field(default_factory=dict)  # place of an input item → its tools
    offered: bool = True  # false for tool_choice "none": checked and echoed, but not in the prompt

    @property
    def offered_clients(self) -> Mapping[str, ClientTool]:
        return self.clients if self.offered else {}

    @property
    def functions(self) -> list[FunctionTool]:
        """The tools that the prompt declares under `functions`."""
        return self._declared(FUNCTIONS)

    @property
    def namespaces(self) -> tuple[ToolNamespace, ...]:
        """The tools that the prompt declares under other namespaces."""
        declared = [(word, self._declared(word)) for word in self.spaces]
        return tuple(ToolNamespace(word, self.spaces[word], tuple(of)) for word, of in declared if of)

    @property
    def calls(self) -> list[ClientCall]:
        return [tool.call for tool in self.offered_clients.values()]

    def add_echo(self, tool: Tool) -> None:
        """Drops keys with null values, except for functions, which keep every key."""
        self.echo.append(dict(tool) if tool.get("type") == "function" else without_nulls(tool))

    def declare(self, tool: ClientTool) -> None:
        """Adds the tool and its echo."""
        self.add(tool)
        self.add_echo(dict(tool.given))

    def add(self, tool: ClientTool) -> None:
        if tool.recipient in self.clients:
            raise InvalidRequest(
                f"`tools` declares {tool.name!r} twice; names must be unique.", param="tools"
            )
        self.clients[tool.recipient] = tool

    @property
    def search(self) -> ToolSearch | None:
        """The search for deferred tools, where it runs here."""
        tool = self.offered_clients.get(recipient_of(SEARCH, None))
        if tool is None or tool.kind != SEARCH or tool.given.get("execution") == "client":
            return None
        return ToolSearch([each for each in self.clients.values() if each.deferred], self.spaces)

    def load(self, more: RequestTools, *, at_head: bool) -> None:
        """Adds tools from the conversation's items, declared at its head or at their item."""
        self.clients |= more.clients
        added = set(more.clients)
        self.not_at_head = self.not_at_head - added if at_head else self.not_at_head | added
        self.spaces |= {word: about or self.spaces.get(word) for word, about in more.spaces.items()}
        self.hosted |= more.hosted
        self.servers += more.servers

    def hide_deferred(self) -> None:
        """Leaves deferred tools to the search, if there is one; otherwise the head declares them."""
        recipient = recipient_of(SEARCH, None)
        tool = self.clients.get(recipient)
        if tool is None or tool.kind != SEARCH:
            return
        deferred = [each for each in self.clients.values() if each.deferred]
        self.not_at_head |= {each.recipient for each in deferred}
        description = search_description(tool.declared.description, deferred, self.spaces)
        declared = replace(tool.declared, description=description)
        self.clients[recipient] = replace(tool, declared=declared)

    def _declared(self, word: str) -> list[FunctionTool]:
        found = self.offered_clients.items()
        return [
            tool.declared
            for recipient, tool in found
            if recipient.partition(".")[0] == word and recipient not in self.not_at_head
        ]


def loaded_tools(tools: Any, where: str) -> RequestTools:
    """The tools of an item. Skips unsupported kinds, as no client chooses what a search finds."""
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidRequest(f"`{where}` must be an array of tools.", param=where)
    read = RequestTools()
    for index, tool in enumerate(tools):
        kind = tool.get("type", "function")
        if isinstance(kind, str) and kind in READERS:
            READERS[kind]({**tool, "type": kind}, f"{where}[{index}]", read, FLAT)
    return read


def parse_tools(tools: Sequence[Tool], *, offered: bool) -> RequestTools:
    read = RequestTools(offered=offered)
    for index, tool in enumerate(tools):
        read_tool(tool, f"tools[{index}]", read)
    return read


def read_tool(tool: Tool, where: str, read: RequestTools, dialect: Dialect = FLAT) -> None:
    kind = dialect.kind(tool)
    reader = READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise UnsupportedField(
            f"`{where}.type`: tools of type {kind!r} are not served by this server; "
            "declare it as a function and run it on your side.",
            param=f"{where}.type",
        )
    reader(tool, where, read, dialect)


def _function(tool: Tool, where: str, read: RequestTools, dialect: Dialect) -> None:
    """A function that the client runs; with `strict`, its arguments fit `parameters`."""
    read.declare(function_tool(tool, where, dialect=dialect))


def _custom(tool: Tool, where: str, read: RequestTools, dialect: Dialect) -> None:
    """A tool that the client runs on a text, which may have a grammar."""
    read.declare(custom_tool(tool, where, dialect=dialect))


def _client_shape(tool: Tool, where: str, read: RequestTools, _: Dialect) -> None:
    """A tool that the client runs, whose shape the API fixes."""
    read.declare(client_shape(tool, where))


def _tool_search(tool: Tool, where: str, read: RequestTools, _: Dialect) -> None:
    """A search for tools with `defer_loading`; with `execution: client`, the client runs it."""
    read.declare(search_tool(tool, where))


def _namespace(tool: Tool, where: str, read: RequestTools, _: Dialect) -> None:
    """Functions and custom tools under a common name."""
    name, members = text_field(tool, "name", where), tool.get("tools")
    check(tool, where, "description", str, "a string")
    if not isinstance(members, list) or not members:
        raise InvalidRequest(
            f"`{where}.tools` must be an array of at least one tool.", param=f"{where}.tools"
        )
    word = namespace_word(name)
    read.spaces[word] = read.spaces.get(word) or tool.get("description")
    echoed: list[Tool] = []
    for index, member in enumerate(members):
        place = f"{where}.tools[{index}]"
        kind = member.get("type", "function") if isinstance(member, dict) else None
        reader = _OF_NAMESPACES.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise UnsupportedField(
                f"`{place}.type`: a namespace holds tools of type 'function' and 'custom'.",
                param=f"{place}.type",
            )
        found = reader(member, place, name)
        read.add(found)
        echoed.append(dict(found.given))
    read.add_echo({**tool, "description": tool.get("description") or "", "tools": echoed})


def _hosted(tool: Tool, where: str, read: RequestTools, _: Dialect) -> None:
    """A tool that this server runs, if its operator has enabled it."""
    hosted = BY_TYPE[tool["type"]]
    for key, kind, expected in hosted.fields:
        check(tool, where, key, kind, expected)
    if hosted.is_optional(tool):
        read.optional.add(hosted.namespace)
    options = hosted.options(tool, where)
    if options is not None:
        read.hosted[hosted.namespace] = options
    read.add_echo(hosted.echo(tool))


def _mcp(tool: Tool, where: str, read: RequestTools, _: Dialect) -> None:
    """The tools of an MCP server, which this server calls."""
    try:
        from tools.mcp.endpoints import public_form
    except ImportError as error:
        raise ToolNotAvailable(
            f"MCP servers cannot be used here. {how_to_install(error)}", param=where
        ) from None
    read.servers.append((where, tool))
    read.add_echo(public_form(tool))


_OF_NAMESPACES: dict[str, Callable[[Fields, str, str], ClientTool]] = {
    "function": function_tool,
    "custom": custom_tool,
}

READERS: dict[str, Callable[[Tool, str, RequestTools, Dialect], None]] = {
    "function": _function,
    "custom": _custom,
    "namespace": _namespace,
    "tool_search": _tool_search,
    "local_shell": _client_shape,
    "shell": _client_shape,
    "apply_patch": _client_shape,
    "mcp": _mcp,
    **dict.fromkeys(BY_TYPE, _hosted),
}
