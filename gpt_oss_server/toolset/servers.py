"""Connects to the MCP servers of a request.

Takes tools of type `mcp` as the client wrote them. Returns `ServerTools`: their declarations, and an
mcp_list_tools item for each server that the conversation has not listed before. If a server cannot list its
tools, its item holds the error, and the model proceeds without it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from gpt_oss_server.content.tools import Tool
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.mcp import Record, carried, carried_listing, list_item, record_of, shown_tools
from gpt_oss_server.toolset.bound import ServerTools
from gpt_oss_server.toolset.offered import Toolset
from tools.mcp.client import McpTool, Narrowed
from tools.mcp.endpoints import McpSettingsError
from tools.mcp.failures import McpFailure
from tools.mcp.listing import McpListing
from tools.mcp.request import request_tool
from tools.mcp.transports import Reach
from tools.toolbox import Toolbox, offer_of

Server = McpTool | Narrowed


async def connect_servers(
    servers: Sequence[tuple[str, Tool]],
    toolset: Toolset,
    taken: frozenset[str],
    ids: Ids,
    records: Mapping[str, Record],
) -> ServerTools:
    """`taken`: the namespaces of the request's other tools.

    `records`: the lists of earlier turns, by server label. A server that has one is not listed again.
    """
    earlier = [carried_listing(written, records) for _, written in servers]
    named = [_read(*written, toolset, before) for written, before in zip(servers, earlier, strict=True)]
    _check_namespaces([server.declaration.namespace for server in named], taken)
    own = [offer_of(each, each.timeout, counted_as="mcp") for each in named if isinstance(each, McpTool)]
    toolbox = Toolbox(own, parent=toolset.toolbox) if own else None
    try:
        listings = await asyncio.gather(*map(_listing, named))  # concurrently: one may not answer at all
        news = [
            await _news(server, listing, before, tool.get("server_url"), ids)
            for server, listing, before, (_, tool) in zip(named, listings, earlier, servers, strict=True)
        ]
    except BaseException:
        _close(toolset, toolbox)  # it may hold connections from before the failure
        raise
    answers = list(zip(named, listings, strict=True))
    listed = [(server, answer) for server, answer in answers if isinstance(answer, McpListing)]
    tools = {
        f"{server.declaration.namespace}.{tool.word}": (server, tool.name)
        for server, listing in listed
        for tool in listing.tools
    }
    return ServerTools(
        declarations=tuple(server.declaration for server, _ in listed),
        options={s.declaration.namespace: s.options for s, _ in listed if isinstance(s, Narrowed)},
        names={to: (server.label, name) for to, (server, name) in tools.items()},
        approvals={to: (s.label, name) for to, (s, name) in tools.items() if s.needs_approval(name)},
        missing={s.declaration.namespace: str(why) for s, why in answers if isinstance(why, McpFailure)},
        listings=tuple(item for item, _ in news if item is not None),
        carries=tuple(carried(record) for _, record in news if record is not None),
        toolbox=toolbox,
        close=partial(_close, toolset, toolbox),
    )


def _check_namespaces(spaces: Sequence[str], taken: frozenset[str]) -> None:
    if len(set(spaces)) < len(spaces):
        raise InvalidRequest.at("tools", "names an MCP server twice; server_label must be unique.")
    if shared := taken & set(spaces):
        raise InvalidRequest.at(
            "tools", f"has an MCP server and a tool of this server that are both called {min(shared)!r}."
        )


async def _news(
    server: Server, listing: McpListing | McpFailure, earlier: McpListing | None, url: str | None, ids: Ids
) -> tuple[Item | None, Record | None]:
    """The item that shows a server's list, and what later turns need of it; None if the list is not new."""
    if isinstance(listing, McpFailure):
        return {**list_item(ids, server.label), "error": str(listing)}, None
    # An operator's server keeps its own list, which may have changed since then.
    if earlier is not None and earlier.only(server.permissions).tools == listing.tools:
        return None, None
    about = {"instructions": listing.instructions} if listing.instructions else {}
    item = {**list_item(ids, server.label), "tools": shown_tools(listing), **about}
    return item, record_of(server.label, url, await server.full_listing())


def _read(where: str, tool: Tool, toolset: Toolset, listing: McpListing | None) -> Server:
    try:
        return request_tool(
            tool,
            toolset.operators,
            reach=Reach(toolset.allow_private_hosts),
            timeout=toolset.mcp_timeout,
            listing=listing,
        )
    except McpSettingsError as error:
        raise InvalidRequest(f"`{where}`: {error}", param=f"{where}.{error.param}") from None


async def _listing(server: Server) -> McpListing | McpFailure:
    try:
        return await server.list()
    except McpFailure as failure:
        return failure


def _close(toolset: Toolset, toolbox: Toolbox | None) -> None:
    """In the background, as an MCP server may take long to close."""
    if toolbox is not None:
        toolset.close_later(toolbox.close())
