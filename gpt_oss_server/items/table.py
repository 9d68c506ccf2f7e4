"""The table of item kinds: the server knows each kind that has a line here, and the tools given from outside.

Returns `Kinds`, a frozen value that the rooms which read tools and items are given. docs/extending.md adds a
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.content.tools import RequestTools, Tool
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.items.apply_patch import APPLY_PATCH
from gpt_oss_server.items.code_interpreter import CodeInterpreter
from gpt_oss_server.items.compaction import COMPACTION
from gpt_oss_server.items.custom_call import CUSTOM_CALL
from gpt_oss_server.items.file_search import FILE_SEARCH_CALL
from gpt_oss_server.items.function_call import FUNCTION_CALL
from gpt_oss_server.items.hosted import HostedTool
from gpt_oss_server.items.kind import ItemKind, ItemType, ToolType
from gpt_oss_server.items.mcp import MCP
from gpt_oss_server.items.message import MESSAGE
from gpt_oss_server.items.others import OTHERS, ContainerTool
from gpt_oss_server.items.program import Program, callers_of, with_functions
from gpt_oss_server.items.reasoning import REASONING
from gpt_oss_server.items.shell import LOCAL_SHELL, Shell
from gpt_oss_server.items.tool_search import TOOL_SEARCH
from gpt_oss_server.items.web_search import WebSearch

BUILT_IN: tuple[ItemKind | HostedTool, ...] = (
    MESSAGE,
    REASONING,
    FUNCTION_CALL,
    CUSTOM_CALL,
    OTHERS,
    TOOL_SEARCH,
    LOCAL_SHELL,
    Shell(),
    APPLY_PATCH,
    MCP,
    Program(),
    WebSearch(),
    FILE_SEARCH_CALL,
    CodeInterpreter(),
    ContainerTool(),
    COMPACTION,
)


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds that a server knows."""

    items: Mapping[str, ItemType]  # by `type`
    tools: Mapping[str, ToolType]  # by `type`
    hosted: Mapping[str, HostedTool]  # by namespace
    origins: Mapping[str, str] = field(default_factory=dict)  # namespace of a tool from outside → its package

    @classmethod
    def of(cls, *tools: HostedTool) -> Kinds:
        """The kinds of the table. These tools replace those of their namespaces."""
        kinds = cls({}, {}, {})
        for row in (*BUILT_IN, *tools):
            kinds = kinds._with(row)
        return kinds

    def adding(self, tool: HostedTool, origin: str) -> Kinds:
        """The same kinds and a tool from outside, whose package is `origin`."""
        return replace(self._with(tool), origins={**self.origins, tool.namespace: origin})

    def _with(self, row: ItemKind | HostedTool) -> Kinds:
        kind = row.kind() if isinstance(row, HostedTool) else row
        return replace(
            self,
            items={**self.items, **{item.name: item for item in kind.items}},
            tools={**self.tools, **{tool.name: tool for tool in kind.tools}},
            hosted={**self.hosted, row.namespace: row} if isinstance(row, HostedTool) else self.hosted,
        )

    @property
    def includable(self) -> frozenset[str]:
        """The values of a request's `include` that hosted tools know."""
        return frozenset(name for tool in self.hosted.values() for name in tool.includable)

    def hosted_tool(self, kind: object) -> HostedTool | None:
        """The hosted tool that requests declare with this `type`."""
        tool = self.tools.get(kind) if isinstance(kind, str) else None
        return None if tool is None or tool.namespace is None else self.hosted[tool.namespace]

    def called(self, recipient: str) -> HostedTool | None:
        """The hosted tool of a recipient; None for MCP servers and for tools that the client runs."""
        return self.hosted.get(recipient.partition(".")[0])

    def item_type(self, kind: object) -> ItemType | None:
        return self.items.get(kind) if isinstance(kind, str) else None

    def id_prefix(self, kind: str) -> str:
        """The prefix of the ids of items of this `type`."""
        return self.items[kind].prefix if kind in self.items else "item"

    def read_tools(self, tools: Sequence[Tool], *, offered: bool) -> RequestTools:
        read = RequestTools(offered=offered)
        for index, tool in enumerate(tools):
            self.read_tool(tool, f"tools[{index}]", read)
        with_functions(read)
        return read

    def read_tool(self, tool: Tool, where: str, read: RequestTools) -> None:
        """Adds a declared tool to `read`, or raises a 400."""
        kind = tool.get("type")
        known = self.tools.get(kind) if isinstance(kind, str) else None
        if known is None:
            raise UnsupportedField.at(
                f"{where}.type",
                f": tools of type {kind!r} are not served by this server; "
                "declare it as a function and run it on your side.",
            )
        for_programs, direct = callers_of(tool, where)
        if for_programs:
            inner = RequestTools()
            known.read(tool, where, inner)
            read.programs |= inner.clients
            if not direct:
                read.echo += inner.echo
                return
        known.read(tool, where, read)

    def read_loaded(self, tools: Any, where: str) -> RequestTools:
        """The tools of an item. Skips unsupported kinds, as no client chooses what a search finds."""
        if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
            raise InvalidRequest.at(where, "must be an array of tools.")
        read = RequestTools()
        for index, tool in enumerate(tools):
            kind = tool.get("type", "function")
            if isinstance(kind, str) and kind in self.tools:
                self.tools[kind].read({**tool, "type": kind}, f"{where}[{index}]", read)
        return read
