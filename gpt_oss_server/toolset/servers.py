"""Connects to the MCP servers of a request and adds their tools to its tools.

Takes tools of type `mcp` as the client wrote them. Adds to `HostedTools` their declarations, and an
mcp_list_tools item for each server that the conversation has not listed before. If a server cannot list its
tools, its item holds the error, and the model proceeds without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.mcp import Record, carried, carried_listing, list_item, record_of, shown_tools
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.offered import Toolset
from tools.mcp.client import McpTool, Narrowed
from tools.mcp.endpoints import McpSettingsError
from tools.mcp.failures import McpFailure
from tools.mcp.listing import McpListing
from tools.mcp.request import request_tool
from tools.mcp.transports import Reach
from tools.toolbox import Offer, Toolbox, offer_of


async def add_servers(
    servers: Sequence[tuple[str, dict[str, Any]]],
    toolset: Toolset,
    hosted: HostedTools,
    ids: Ids,
    records: Mapping[str, Record],
) -> None:
    """`records`: the lists of earlier turns, by server label. A server that has one is not listed again."""
    known = [carried_listing(written, records) for _, written in servers]
    made = [
        _read(where, written, toolset, listing)
        for (where, written), listing in zip(servers, known, strict=True)
    ]
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
    for server, listing, carried_over, (_, written) in zip(made, listings, known, servers, strict=True):
        if isinstance(listing, McpFailure):
            hosted.missing[server.declaration.namespace] = str(listing)
            hosted.listings.append({**list_item(ids, server.label), "error": str(listing)})
            continue
        _declare(server, listing, hosted)
        # An operator's server keeps its own list, which may have changed since then.
        if carried_over is None or carried_over.only(server.permissions).tools != listing.tools:
            about = {"instructions": listing.instructions} if listing.instructions else {}
            hosted.listings.append({**list_item(ids, server.label), "tools": shown_tools(listing), **about})
            record = record_of(server.label, written.get("server_url"), await server.full_listing())
            hosted.carries.append(carried(record))


def _offer(server: McpTool) -> Offer:
    return offer_of(server, server.timeout, counted_as="mcp")


def _read(
    where: str, written: dict[str, Any], toolset: Toolset, listing: McpListing | None
) -> McpTool | Narrowed:
    try:
        return request_tool(
            written,
            toolset.operators,
            reach=Reach(toolset.allow_private_hosts),
            timeout=toolset.mcp_timeout,
            listing=listing,
        )
    except McpSettingsError as error:
        raise InvalidRequest(f"`{where}`: {error}", param=f"{where}.{error.param}") from None


async def _listing(server: McpTool | Narrowed) -> McpListing | McpFailure:
    try:
        return await server.list()
    except McpFailure as failure:
        return failure


def _declare(server: McpTool | Narrowed, listing: McpListing, hosted: HostedTools) -> None:
    declaration = server.declaration
    hosted.declarations += (declaration,)
    if isinstance(server, Narrowed):
        hosted.options[declaration.namespace] = server.options
    for tool in listing.tools:
        recipient = f"{declaration.namespace}.{tool.word}"
        hosted.names[recipient] = (server.label, tool.name)
        if server.needs_approval(tool.name):
            hosted.approvals[recipient] = (server.label, tool.name)
