"""Tool search: deferred tools, which the prompt declares only after the model searches for them.

Takes the client's deferred tools, and the arguments of a search. Returns the description of the search, which
lists the tools it can find, and the found tools as the client wrote them. A search matches whole names, and
words in names, descriptions and parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.content.tools import SEARCH, ClientTool, Tool
from gpt_oss_server.harmony.declarations import FUNCTIONS, ToolNamespace, tools_section
from tools.tool import ToolOutput

_MOST_FOUND = 10
_LONGEST_LISTED = 200  # characters of a description in the list of tools
_WORDS = re.compile(r"[^\W_]+")


def search_description(
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
            ToolNamespace(word, spaces.get(word), tuple(tool.declared for tool in of))
            for word, of in by_space.items()
        ]
    )


def as_written(tools: Sequence[ClientTool], spaces: Mapping[str, str | None]) -> list[Tool]:
    """The tools as the client wrote them, grouped by namespace."""
    found: list[Tool] = []
    of_spaces: dict[str, Tool] = {}
    for tool in tools:
        if tool.namespace is None:
            found.append(dict(tool.given))
            continue
        if tool.namespace not in of_spaces:
            about = spaces.get(tool.recipient.partition(".")[0]) or ""
            space = {"type": "namespace", "name": tool.namespace, "description": about, "tools": []}
            of_spaces[tool.namespace] = space
            found.append(space)
        of_spaces[tool.namespace]["tools"].append(dict(tool.given))
    return found


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """A search that runs here, over one request's deferred tools."""

    deferred: Sequence[ClientTool]
    spaces: Mapping[str, str | None] = field(default_factory=dict)
    recipient: str = f"{FUNCTIONS}.{SEARCH}"

    def run(self, arguments: str) -> ToolOutput:
        found = self.find(arguments)
        details = {"tools": as_written(found, self.spaces)}
        return ToolOutput(declared_text(found, self.spaces), details=details)

    def find(self, arguments: str) -> list[ClientTool]:
        paths, query = _arguments(arguments)
        named = [tool for tool in self.deferred if self._names(tool) & paths]
        words = _words(query)
        scores = {tool.recipient: self._score(tool, words) for tool in self.deferred}
        enough = max(scores.values(), default=0) / 3  # one shared word of many is no match
        alike = [tool for tool in self.deferred if scores[tool.recipient] > enough]
        alike.sort(key=lambda tool: -scores[tool.recipient])
        found = {tool.recipient: tool for tool in [*named, *alike[:_MOST_FOUND]]}
        return list(found.values())

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
        given: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return set(), arguments
    if not isinstance(given, dict):
        return set(), str(given)
    paths, query = given.get("paths"), given.get("query")
    listed = paths if isinstance(paths, list) else [paths]
    return {path for path in listed if isinstance(path, str)}, query if isinstance(query, str) else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(text) if len(word) > 2)


def _short(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= _LONGEST_LISTED else f"{line[: _LONGEST_LISTED - 1]}…"
