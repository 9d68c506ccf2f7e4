"""Listings of MCP servers that a conversation carries, so that no continued turn lists a server again.

Takes the listing of a server, or an mcp_list_tools item that a client sent back. Returns a segment without
tokens for the history, and the listing again from its tools. It must not know how a listing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpt_oss_server.harmony.history import Segment

if TYPE_CHECKING:
    from tools.mcp.listing import McpListing

KIND = "mcp_list_tools"
Record = Mapping[str, Any]
"""An mcp_list_tools item with the server's `server_url` and `instructions`, or as the client sent it back."""


def carried(record: Record) -> Segment:
    return Segment("developer", (), tools=(record,))


def shown_tools(listing: McpListing) -> list[dict[str, Any]]:
    """The tools in the form of an mcp_list_tools item."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.input_schema),
            "annotations": dict(tool.annotations) if tool.annotations else None,
        }
        for tool in listing.tools
    ]


def record_of(label: str, url: str | None, listing: McpListing) -> Record:
    return {
        "type": KIND,
        "server_label": label,
        "server_url": url,
        "instructions": listing.instructions,
        "tools": shown_tools(listing),
    }


def records_in(tools: Iterable[Any]) -> dict[str, Record]:
    """By server label: the newest listing without an error."""
    return {
        tool["server_label"]: tool
        for tool in tools
        if isinstance(tool, Mapping)
        and tool.get("type") == KIND
        and isinstance(tool.get("server_label"), str)
        and not tool.get("error")
    }


def carried_listing(written: Mapping[str, Any], records: Mapping[str, Record]) -> McpListing | None:
    """The listing of a request's server; None if the conversation has none, or one of another URL."""
    record = records.get(str(written.get("server_label")))
    if record is None or record.get("server_url", written.get("server_url")) != written.get("server_url"):
        return None
    from tools.mcp.listing import listed_again  # it loads the MCP packages, which most requests do not need

    return listed_again(record.get("tools"), record.get("instructions"))
