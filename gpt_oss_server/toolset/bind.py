"""Binds a request's hosted tools to the server's toolset and to the request's MCP servers.

Takes the tools that the request wants and the server offers. Returns `HostedTools` for the turn, or raises a
400 that names the setting to change for a tool that the server does not offer.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module

from gpt_oss_server.caller.access import MCP
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import ContainerNotFound, InvalidRequest, ToolNotAvailable
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import search_here
from gpt_oss_server.toolset.bound import HostedTools, ServerTools
from gpt_oss_server.toolset.offered import Toolset


@asynccontextmanager
async def bound_tools(
    tools: RequestTools,
    ready: Callable[[], Awaitable[Toolset]],
    caller: Caller,
    kinds: Kinds,
    ids: Ids,
    *,
    limit: int | None,
    conversation: str = "",
) -> AsyncGenerator[HostedTools, None]:
    """The hosted tools of a request. If the block raises, they are closed.

    Waits until the toolset is `ready`, unless the request has no hosted tools.
    """
    hosted = HostedTools(kinds, conversation=conversation, limit=limit, search=search_here(tools))
    if tools.hosted or tools.servers:
        toolset = await ready()
        own = await _with_own(hosted, tools, toolset, caller)
        hosted = await _with_servers(own, tools, toolset, ids)
    try:
        if shared := hosted.namespaces & set(tools.spaces):
            raise InvalidRequest.at(
                "tools", f"has a namespace and an MCP server that are both called {min(shared)!r}."
            )
        yield hosted
    except BaseException:
        await hosted.close(keeps_conversation=True)
        raise


async def _with_own(
    hosted: HostedTools, tools: RequestTools, toolset: Toolset, caller: Caller
) -> HostedTools:
    """Adds the tools of this server."""
    kinds, access = hosted.kinds.hosted, caller.access
    offered = {declaration.namespace: declaration for declaration in toolset.toolbox.declarations}
    lacking = {
        name
        for name, options in tools.hosted.items()
        if name in kinds and kinds[name].lacks(options, here=name in toolset.local)
    }
    usable = {name for name in offered if access.allows(name)} - lacking
    wanted = list(tools.hosted) if tools.offered else []
    wanted = [name for name in wanted if name in usable or name not in tools.optional]
    if tools.servers and tools.offered:
        access.check_tool(MCP)
    for name in wanted:
        access.check_tool(name)
        if name not in offered or name in lacking:
            refusal = toolset.refusals.get(name) or kinds[name].off
            raise ToolNotAvailable(refusal or f"This server does not offer the tool {name}.", param="tools")
    options = {
        name: await kinds[name].bound(options, caller.owner)
        for name, options in tools.hosted.items()
        if name in wanted
    }
    named = {name: container for name in options if (container := kinds[name].container(options[name]))}
    return replace(
        hosted,
        toolbox=toolset.toolbox,
        client=caller.tool_client,
        declarations=tuple(kinds[name].declared(offered[name], options[name]) for name in wanted),
        options=options,
        containers={name: _open_container(named[name], name, toolset, caller) for name in named},
    )


async def _with_servers(hosted: HostedTools, tools: RequestTools, toolset: Toolset, ids: Ids) -> HostedTools:
    """Adds the tools of the request's MCP servers."""
    if not tools.servers or not tools.offered:
        return hosted
    # On a thread, because the first import takes more than a second.
    connecting = await asyncio.to_thread(import_module, "gpt_oss_server.toolset.servers")
    servers: ServerTools = await connecting.connect_servers(
        tools.servers, toolset, hosted.namespaces, ids, tools.listings
    )
    return replace(
        hosted,
        declarations=(*hosted.declarations, *servers.declarations),
        options={**hosted.options, **servers.options},
        servers=servers,
    )


def _open_container(container: str, namespace: str, toolset: Toolset, caller: Caller) -> str:
    """The conversation of a container that a request names. The container must exist."""
    conversation = toolset.conversation_of(container, namespace, caller)
    if namespace not in toolset.local or not conversation:
        raise ContainerNotFound(
            f"There is no container {container!r}: it never existed, or it expired after being idle. Create "
            "one with POST /v1/containers.",
            param="tools",
        )
    return conversation
