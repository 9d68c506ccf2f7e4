"""The listing of an MCP server as the model gets it: limited, with a safe word for each tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcp.client import Client
from mcp_types import PaginatedRequestParams, Tool
from pydantic import ValidationError

from tools.mcp.names import safe_names
from tools.mcp.permissions import Permissions
from tools.tool import cut, encodable

_PAGES = 50
_TOOLS = 512
_DESCRIPTION_CHARS = 8_000
_SCHEMA_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class ListedTool:
    """`name` is the server's, `word` the recipient's. The other fields are for an mcp_list_tools item."""

    name: str
    word: str
    description: str | None
    input_schema: Mapping[str, Any]
    annotations: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class McpListing:
    tools: tuple[ListedTool, ...]
    instructions: str | None = None
    server_name: str | None = None

    def by_word(self, word: str) -> ListedTool | None:
        return next((tool for tool in self.tools if tool.word == word), None)

    def by_name(self, name: str) -> ListedTool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def only(self, permissions: Permissions) -> McpListing:
        kept = tuple(tool for tool in self.tools if permissions.allows(tool.name, tool.annotations))
        return replace(self, tools=kept)

    def redacted(self, redact: Callable[[str], str]) -> McpListing:
        """Removes secrets that the server wrote into its descriptions and schemas."""

        def clean(value: Any) -> Any:
            match value:
                case str():
                    return redact(value)
                case Mapping():
                    return {redact(str(key)): clean(item) for key, item in value.items()}
                case list():
                    return [clean(item) for item in value]
                case _:
                    return value

        shown = ("description", "input_schema", "annotations")
        tools = tuple(
            replace(tool, **{name: clean(getattr(tool, name)) for name in shown}) for tool in self.tools
        )
        return replace(self, tools=tools, instructions=clean(self.instructions))


async def fetch_listing(client: Client) -> McpListing:
    """Fetches all pages; raises what the `mcp` package raises."""
    listed: dict[str, Tool] = {}
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        for tool in page.tools[: _TOOLS - len(listed)]:
            listed.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if cursor is None or len(listed) >= _TOOLS:
            break
    words = safe_names(listed)
    server = client.server_info
    return McpListing(
        tuple(_listed(tool, words[tool.name]) for tool in listed.values()),
        instructions=_short(client.instructions),
        server_name=server.name if server is not None else None,
    )


def listed_again(tools: Any, instructions: Any) -> McpListing | None:
    """The listing in the `tools` of an mcp_list_tools item; None if they are malformed or too many."""
    if not isinstance(tools, list) or not 0 < len(tools) <= _TOOLS:
        return None
    try:
        known = [Tool.model_validate(tool) for tool in tools]
    except ValidationError:
        return None
    words = safe_names(tool.name for tool in known)
    listed = tuple(_listed(tool, words[tool.name]) for tool in known)
    return McpListing(listed, _short(instructions) if isinstance(instructions, str) else None)


def _listed(tool: Tool, word: str) -> ListedTool:
    annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else None
    return ListedTool(tool.name, word, _short(tool.description), _schema(tool.input_schema), annotations)


def _short(text: str | None) -> str | None:
    return None if text is None else cut(encodable(text), _DESCRIPTION_CHARS)


def _schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema, or that of any object if it is too large to show to a model."""
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > _SCHEMA_CHARS:
        return {"type": "object"}
    cleaned: Mapping[str, Any] = json.loads(encodable(text))
    return cleaned
