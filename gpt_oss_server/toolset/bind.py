"""Binds a request's hosted tools to the server's toolset and to the request's MCP servers.

Takes the tools that the request wants and the server offers. Returns `HostedTools` for the turn, or raises a
400 that names the setting to change for a tool that the server does not offer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from gpt_oss_server.caller.access import MCP
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import ContainerNotFound, InvalidRequest, ToolNotAvailable
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import search_here
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.offered import Toolset
from tools.toolbox import Toolbox


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
    """The built-in tools of a request. If the block raises, they are closed."""
    hosted = await bind_tools(tools, ready, caller, kinds, ids)
    hosted.conversation, hosted.limit = conversation, limit
    try:
        yield hosted
    except BaseException:
        await hosted.close(keeps_conversation=True)
        raise


async def bind_tools(
    tools: RequestTools, ready: Callable[[], Awaitable[Toolset]], caller: Caller, kinds: Kinds, ids: Ids
) -> HostedTools:
    """Waits until the toolset is `ready`, unless the request has no hosted tools."""
    if not tools.hosted and not tools.servers:
        return HostedTools(Toolbox(), kinds, search=search_here(tools))
    toolset, access = await ready(), caller.access
    offered = {declaration.namespace: declaration for declaration in toolset.toolbox.declarations}
    hosted = HostedTools(toolset.toolbox, kinds, caller.tool_client, search=search_here(tools))
    usable = {name for name in offered if access.allows(name)}
    wanted = list(tools.hosted) if tools.offered else []
    if wanted:
        wanted += [name for name, tool in kinds.hosted.items() if tool.joins_others and name in usable]
    wanted = [name for name in wanted if name in usable or name not in tools.optional]
    if tools.servers and tools.offered:
        access.check_tool(MCP)
    for namespace in wanted:
        access.check_tool(namespace)
        if namespace not in offered:
            refusal = toolset.refusals.get(namespace) or kinds.hosted[namespace].off
            raise ToolNotAvailable(
                refusal or f"This server does not offer the tool {namespace}.", param="tools"
            )
    hosted.declarations = tuple(offered[namespace] for namespace in wanted)
    hosted.options = {name: options for name, options in tools.hosted.items() if name in wanted}
    for namespace, options in hosted.options.items():
        if container := kinds.hosted[namespace].container(options):
            hosted.containers[namespace] = _open_container(container, namespace, toolset, caller)
    if tools.servers and tools.offered:
        try:
            # On a thread, because the first import takes more than a second.
            add_servers = await asyncio.to_thread(_add_servers)
            await add_servers(tools.servers, toolset, hosted, ids, tools.listings)
        except BaseException:
            await hosted.close(keeps_conversation=True)  # it may hold connections from before the failure
            raise
    if shared := hosted.namespaces & set(tools.spaces):
        await hosted.close(keeps_conversation=True)
        raise InvalidRequest(
            f"`tools` has a namespace and an MCP server that are both called {min(shared)!r}.", param="tools"
        )
    return hosted


def _add_servers() -> Callable[..., Awaitable[None]]:
    from gpt_oss_server.toolset.servers import add_servers

    return add_servers


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
