"""Tool search: deferred tools, which the prompt declares only after the model searches for them.

Takes the declared search, which the client or the server runs, its calls and outputs of a request, and the
arguments of a search. Returns its description, which lists the tools it can find, and the found tools as the
client wrote them. A search matches whole names, and words in names, descriptions and parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.content.tools import (
    ClientTool,
    RequestTools,
    Tool,
    check,
    described,
    object_schema,
    recipient_of,
)
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.declarations import FunctionTool, ToolNamespace, tools_section
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Event, Item, ItemBuilder, ShapedCall, WholeItem
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.kind import ItemKind, ItemType, ToolType, completed
from tools.tool import ToolOutput

SEARCH = "tool_search"
_RECIPIENT = recipient_of(SEARCH, None)
_OUTPUT = "tso"  # the prefix of ids
_MOST_FOUND = 10
_LONGEST_LISTED = 200  # characters of a description in the list of tools
_WORDS = re.compile(r"[^\W_]+")


def search_here(tools: RequestTools) -> ToolSearch | None:
    """The search of these tools, where it runs on this server."""
    tool = tools.offered_clients.get(_RECIPIENT)
    if tool is None or tool.kind != SEARCH or tool.echo.get("execution") == "client":
        return None
    return ToolSearch(tools.deferred, tools.spaces)


def hide_deferred(tools: RequestTools) -> None:
    """Leaves deferred tools to the search, if there is one; otherwise the head declares them."""
    tool = tools.clients.get(_RECIPIENT)
    if tool is None or tool.kind != SEARCH:
        return
    tools.not_at_head |= {deferred.recipient for deferred in tools.deferred}
    description = _described_search(tool.declared.description, tools.deferred, tools.spaces)
    tools.clients[_RECIPIENT] = replace(tool, declared=replace(tool.declared, description=description))


def _described_search(
    description: str | None, deferred: Iterable[ClientTool], spaces: Mapping[str, str | None]
) -> str:
    """The search's description for the model: its purpose, and the tools that it can find."""
    listed: dict[str, str] = {}
    for tool in deferred:
        word = tool.recipient.partition(".")[0]
        if tool.namespace is None:
            listed.setdefault(tool.name, _short(tool.declared.description))
        else:
            listed.setdefault(tool.namespace, _short(spaces.get(word)))
    lines = [f"- {name}{f': {about}' if about else ''}" for name, about in listed.items()]
    purpose = (
        description or "Finds tools, and says how to call them. Search before you call a tool listed here."
    )
    return "\n".join([purpose, *(["Tools and namespaces that can be found:", *lines] if lines else [])])


def declared_text(tools: Sequence[ClientTool], spaces: Mapping[str, str | None]) -> str:
    """The declarations of tools that a search or an item adds in mid-conversation."""
    by_space: dict[str, list[ClientTool]] = {}
    for tool in tools:
        by_space.setdefault(tool.recipient.partition(".")[0], []).append(tool)
    if not by_space:
        return "No tool was found."
    return tools_section(
        [
            ToolNamespace(word, spaces.get(word), tuple(tool.declared for tool in members))
            for word, members in by_space.items()
        ]
    )


def as_written(tools: Sequence[ClientTool], spaces: Mapping[str, str | None]) -> list[Tool]:
    """The tools as the client wrote them, grouped by namespace."""
    written: list[Tool] = []
    of_spaces: dict[str, Tool] = {}
    for tool in tools:
        if tool.namespace is None:
            written.append(dict(tool.echo))
            continue
        if tool.namespace not in of_spaces:
            about = spaces.get(tool.recipient.partition(".")[0]) or ""
            space = {"type": "namespace", "name": tool.namespace, "description": about, "tools": []}
            of_spaces[tool.namespace] = space
            written.append(space)
        of_spaces[tool.namespace]["tools"].append(dict(tool.echo))
    return written


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """A search that runs here, over one request's deferred tools."""

    deferred: Sequence[ClientTool]
    spaces: Mapping[str, str | None] = field(default_factory=dict)
    recipient: str = _RECIPIENT

    def run(self, arguments: str) -> ToolOutput:
        tools = self.find(arguments)
        details = {"tools": as_written(tools, self.spaces)}
        return ToolOutput(declared_text(tools, self.spaces), details=details)

    def find(self, arguments: str) -> list[ClientTool]:
        paths, query = _arguments(arguments)
        named = [tool for tool in self.deferred if self._names(tool) & paths]
        words = _words(query)
        scores = {tool.recipient: self._score(tool, words) for tool in self.deferred}
        enough = max(scores.values(), default=0) / 3  # one shared word of many is no match
        alike = [tool for tool in self.deferred if scores[tool.recipient] > enough]
        alike.sort(key=lambda tool: -scores[tool.recipient])
        return list({tool.recipient: tool for tool in [*named, *alike[:_MOST_FOUND]]}.values())

    def _names(self, tool: ClientTool) -> set[str]:
        if tool.namespace is None:
            return {tool.name, tool.recipient}
        word = tool.recipient.partition(".")[0]
        return {tool.namespace, word, f"{tool.namespace}.{tool.name}", tool.recipient}

    def _score(self, tool: ClientTool, words: frozenset[str]) -> int:
        """Counts a word in a name three times, and a word elsewhere once."""
        about = self.spaces.get(tool.recipient.partition(".")[0]) or ""
        parameters = tool.declared.parameters or {}
        properties = parameters.get("properties")
        keys = " ".join(properties) if isinstance(properties, dict) else ""
        in_names = _words(f"{tool.name} {tool.namespace or ''}")
        in_texts = _words(f"{tool.declared.description or ''} {about} {keys}")
        return 3 * len(words & in_names) + len(words & in_texts)


def _arguments(arguments: str) -> tuple[set[str], str]:
    """The paths and the query; text that is not JSON is a query."""
    try:
        value: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return set(), arguments
    if not isinstance(value, dict):
        return set(), str(value)
    paths, query = value.get("paths"), value.get("query")
    listed = paths if isinstance(paths, list) else [paths]
    return {path for path in listed if isinstance(path, str)}, query if isinstance(query, str) else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(text) if len(word) > 2)


def _short(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= _LONGEST_LISTED else f"{line[: _LONGEST_LISTED - 1]}…"


class ToolSearchBuilder(ShapedCall):
    """A search for tools that the client runs."""

    about = (
        "A search for deferred tools. With `execution: client`, the client runs it and answers with a "
        "`tool_search_output`."
    )
    prefix = "tsc"
    execution = "client"

    def item(self, arguments: Item, status: str) -> Item:
        return {
            "id": self.id,
            "type": "tool_search_call",
            "status": status,
            "call_id": self._call_id,
            "execution": self.execution,
            "arguments": arguments,
        }

    def fits(self, arguments: Item) -> bool:
        return True


class FoundTools(WholeItem):
    about = "The tools that a search of this server found."


class HostedSearchBuilder(ToolSearchBuilder):
    """A search that this server runs; the tools that it finds become a separate item after it."""

    runs_here = True
    client_runs = False
    execution = "server"

    def __init__(self, ids: Ids) -> None:
        ItemBuilder.__init__(self, ids(self.prefix))  # no output of the client names it
        self._call_id = None
        self._output_id = ids(_OUTPUT)

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        return self.close(text, complete=True)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        item = {
            "id": self._output_id,
            "type": "tool_search_output",
            "status": "completed",
            "call_id": None,
            "execution": "server",
            "tools": list(output.details.get("tools", ())),
        }
        return [FoundTools(item)]


_ARGUMENTS = object_schema(
    [],
    paths={
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of tools and namespaces to load.",
    },
    query=described("string", "Words that say what the tool should do."),
)


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """A search for tools with `defer_loading`; with `execution: client`, the client runs it."""
    check(tool, where, "description", str, "a string")
    check(tool, where, "parameters", dict, "a JSON schema object")
    if tool.get("execution") not in (None, "server", "client"):
        raise InvalidRequest.at(f"{where}.execution", "must be 'server' or 'client'.")
    declared = FunctionTool(SEARCH, tool.get("description"), tool.get("parameters") or _ARGUMENTS)
    tools.declare(ClientTool(SEARCH, SEARCH, _RECIPIENT, declared, echo=tool))


def _read_call(item: Item, where: str, conversation: Conversation) -> None:
    """A search for tools."""
    arguments = item.get("arguments")
    written = arguments if isinstance(arguments, str) else to_json(arguments or {}).decode()
    conversation.add(conversation.renderer.call(_RECIPIENT, written))


def _read_output(item: Item, where: str, conversation: Conversation) -> None:
    """The tools that a search found."""
    read = conversation.tools_of(item, where)
    declared = declared_text(list(read.clients.values()), read.spaces)
    segment = conversation.renderer.tool_result(_RECIPIENT, declared)
    conversation.add(replace(segment, tools=tuple(item["tools"])))


def _build(ids: Ids, tool: ClientTool) -> ItemBuilder:
    return (
        ToolSearchBuilder(ids, tool) if tool.echo.get("execution") == "client" else HostedSearchBuilder(ids)
    )


def _listed(item: Item) -> Item:
    return completed({"call_id": None, "execution": "client", **item})


TOOL_SEARCH = ItemKind(
    items=(
        ItemType("tool_search_call", _read_call, ToolSearchBuilder.prefix, _listed),
        ItemType("tool_search_output", _read_output, _OUTPUT, _listed, loads_tools=True),
    ),
    tools=(ToolType(SEARCH, _read_tool, _build),),
)
