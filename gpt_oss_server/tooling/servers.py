"""Connects to the MCP servers of a request and adds their tools to its tools.

Takes tools of type `mcp` as the client wrote them. Adds their declarations and an mcp_list_tools item each to
`HostedTools`. If a server cannot list its tools, its item holds the error, and the model proceeds without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.ids import Ids
from gpt_oss_server.tooling.hosted import HostedTools
from gpt_oss_server.tooling.toolset import Toolset
from tools.mcp.client import McpTool, Narrowed
from tools.mcp.endpoints import McpSettingsError
from tools.mcp.failures import McpFailure
from tools.mcp.listing import McpListing
from tools.mcp.request import request_tool
from tools.mcp.transports import Reach
from tools.toolbox import Offer, Toolbox, offer_of


async def add_servers(
    servers: Sequence[tuple[str, dict[str, Any]]], toolset: Toolset, hosted: HostedTools, ids: Ids
) -> None:
    made = [_read(where, written, toolset) for where, written in servers]
    spaces = [server.declaration.namespace for server in made]
    if len(set(spaces)) < len(spaces):
        raise InvalidRequest("`tools` names an MCP server twice; server_label must be unique.", param="tools")
    if shared := hosted.namespaces & set(spaces):
        raise InvalidRequest(
            f"`tools` has an MCP server and a tool of this server that are both called {min(shared)!r}.",
            param="tools",
        )
    own = [_offer(server) for server in made if isinstance(server, McpTool)]
    if own:
        hosted.own, hosted.close_later = Toolbox(own, parent=toolset.toolbox), toolset.close_later
    listings = await asyncio.gather(*map(_listing, made))  # concurrently: one server may not answer at all
    hosted.listings += [_item(*found, hosted, ids) for found in zip(made, listings, strict=True)]


def _offer(server: McpTool) -> Offer:
    return offer_of(server, server.timeout, counted_as="mcp")


def _read(where: str, written: dict[str, Any], toolset: Toolset) -> McpTool | Narrowed:
    try:
        return request_tool(
            written,
            toolset.operators,
            reach=Reach(toolset.allow_private_hosts),
            timeout=toolset.mcp_timeout,
        )
    except McpSettingsError as error:
        raise InvalidRequest(f"`{where}`: {error}", param=f"{where}.{error.param}") from None


async def _listing(server: McpTool | Narrowed) -> McpListing | McpFailure:
    try:
        return await server.list()
    except McpFailure as failure:
        return failure


def _item(
    server: McpTool | Narrowed, listing: McpListing | McpFailure, hosted: HostedTools, ids: Ids
) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": ids("mcpl"),
        "type": "mcp_list_tools",
        "server_label": server.label,
        "tools": [],
    }
    if isinstance(listing, McpFailure):
        hosted.missing[server.declaration.namespace] = str(listing)
        return {**item, "error": str(listing)}
    declaration = server.declaration
    hosted.declarations += (declaration,)
    if isinstance(server, Narrowed):
        hosted.options[declaration.namespace] = server.options
    for tool in listing.tools:
        recipient = f"{declaration.namespace}.{tool.word}"
        hosted.names[recipient] = (server.label, tool.name)
        if server.needs_approval(tool.name):
            hosted.approvals[recipient] = (server.label, tool.name)
    return {**item, "tools": _shown(listing)}


def _shown(listing: McpListing) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.input_schema),
            "annotations": dict(tool.annotations) if tool.annotations else None,
        }
        for tool in listing.tools
    ]
