"""The table of hosted tools: the server offers each tool that has a line here.

Takes a namespace, a recipient, or the type of a request's tool. Returns the row. docs/extending.md shows
how to add a line.
"""

from __future__ import annotations

from gpt_oss_server.items.code_interpreter import CodeInterpreter
from gpt_oss_server.items.container import ContainerTool
from gpt_oss_server.items.kind import HostedTool
from gpt_oss_server.items.web_search import WebSearch

HOSTED_TOOLS: tuple[HostedTool, ...] = (
    WebSearch(),
    CodeInterpreter(),
    ContainerTool(),
)

BY_NAMESPACE = {tool.namespace: tool for tool in HOSTED_TOOLS}
BY_TYPE = {kind: tool for tool in HOSTED_TOOLS for kind in tool.types}
BY_ITEM_TYPE = {tool.item_type: tool for tool in HOSTED_TOOLS if tool.item_type is not None}


def tool_of(recipient: str) -> HostedTool | None:
    """The tool of a recipient; None for MCP servers and for tools that the client runs."""
    return BY_NAMESPACE.get(recipient.partition(".")[0])
