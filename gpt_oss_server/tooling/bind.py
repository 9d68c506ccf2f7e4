"""Binds a request's hosted tools to the server's toolset and to the request's MCP servers.

In: what the request asks for and what the server offers. Out: `HostedTools` for the turn, or a 400 for a tool
that is asked for and not offered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gpt_oss_server.errors import ContainerNotFound, InvalidRequest, ToolNotAvailable
from gpt_oss_server.ids import Ids
from gpt_oss_server.tooling.container_names import conversation_of
from gpt_oss_server.tooling.hosted import HostedTools
from gpt_oss_server.tooling.requested import RequestTools
from gpt_oss_server.tooling.toolset import Toolset
from tools.toolbox import Toolbox


async def bind_tools(tools: RequestTools, ready: Callable[[], Awaitable[Toolset]], ids: Ids) -> HostedTools:
    """A request that asks for no tool of ours does not wait for the toolset to be `ready`."""
    if not tools.hosted and not tools.servers:
        return HostedTools(Toolbox(), search=tools.search)
    toolset = await ready()
    offered = {declaration.namespace: declaration for declaration in toolset.toolbox.declarations}
    hosted = HostedTools(toolset.toolbox, search=tools.search)
    wanted = list(tools.hosted) if tools.offered else []
    if "container" in offered and wanted:
        wanted.append("container")
    wanted = [name for name in wanted if name in offered or name not in tools.optional]
    for namespace in wanted:
        if namespace not in offered:
            refusal = toolset.refusals.get(namespace, f"The tool {namespace} is not offered here.")
            raise ToolNotAvailable(refusal, param="tools")
    hosted.declarations = tuple(offered[namespace] for namespace in wanted)
    hosted.options = {name: options for name, options in tools.hosted.items() if name in wanted}
    if container := hosted.options.get("python", {}).get("container"):
        hosted.container = _open_container(container, toolset)
    if tools.servers and tools.offered:
        from gpt_oss_server.tooling.servers import add_servers

        try:
            await add_servers(tools.servers, toolset, hosted, ids)
        except BaseException:
            await hosted.close(keeps_conversation=True)  # its connections, made before one was refused
            raise
    if shared := hosted.namespaces & set(tools.spaces):
        await hosted.close(keeps_conversation=True)
        raise InvalidRequest(
            f"`tools` has a namespace and an MCP server that are both called {min(shared)!r}.", param="tools"
        )
    return hosted


def _open_container(container: str, toolset: Toolset) -> str:
    """The conversation behind a container that a request names; it must be there."""
    conversation = conversation_of(container)
    if toolset.python is None or toolset.toolbox.session(conversation, "python") is None:
        raise ContainerNotFound(
            f"There is no container {container!r}: it was never made, or was idle for so long that it is "
            "gone. Make one with POST /v1/containers.",
            param="tools",
        )
    return conversation
