"""Small kinds: messages of agents, images, changes of the effort, further tools, namespaces of tools.

Takes an item of a request, or a declared namespace. Returns segments, or the namespace's tools.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from gpt_oss_server.content.nested import Fields
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.content.tools import ClientTool, RequestTools, Tool, check, namespace_word
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.http.fields import Effort
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.custom_call import custom_tool
from gpt_oss_server.items.function_call import function_tool
from gpt_oss_server.items.hosted import HostedTool
from gpt_oss_server.items.kind import ItemKind, ItemType, ToolType, completed
from gpt_oss_server.items.tool_search import declared_text


def _agent_message(item: Item, where: str, conversation: Conversation) -> None:
    """A message from another of the client's agents, rendered as a user message."""
    author, recipient = (text_field(item, key, where) for key in ("author", "recipient"))
    text = text_of(item.get("content"), f"{where}.content")
    conversation.add(conversation.renderer.user(f"Message from agent {author} to {recipient}:\n{text}"))


def _generated_image(item: Item, where: str, conversation: Conversation) -> None:
    """An image that another model made, which becomes a note that there is one."""
    conversation.add(
        conversation.renderer.preamble(
            "[An image was made here. This model reads text only and cannot see it.]"
        )
    )


def _configuration_update(item: Item, where: str, conversation: Conversation) -> None:
    """The reasoning effort from here on; agents change it within a conversation."""
    reasoning = item.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort is not None and effort not in get_args(Effort):
        raise InvalidRequest.at(
            f"{where}.reasoning.effort", f"must be one of {', '.join(map(repr, get_args(Effort)))}."
        )
    if item.get("text") is not None:
        raise UnsupportedField.at(
            f"{where}.text", ": the form of an answer is the request's own. Send it as `text` there."
        )
    conversation.effort = effort or conversation.effort


def _additional_tools(item: Item, where: str, conversation: Conversation) -> None:
    """Further tools: declared with the request's own at the head of a conversation, else at this place."""
    read = conversation.tools_of(item, where)
    if conversation.leads:
        segment = Segment("developer", (), text="")
    else:
        declared = declared_text(list(read.clients.values()), read.spaces)
        segment = conversation.renderer.tools_message(declared)
    conversation.add(replace(segment, tools=tuple(item["tools"])))


def _read_namespace(tool: Tool, where: str, tools: RequestTools) -> None:
    """Functions and custom tools under a common name."""
    name, members = text_field(tool, "name", where), tool.get("tools")
    check(tool, where, "description", str, "a string")
    if not isinstance(members, list) or not members:
        raise InvalidRequest.at(f"{where}.tools", "must be an array of at least one tool.")
    word = namespace_word(name)
    tools.spaces[word] = tools.spaces.get(word) or tool.get("description")
    echoed: list[Tool] = []
    for index, member in enumerate(members):
        at = f"{where}.tools[{index}]"
        kind = member.get("type", "function") if isinstance(member, dict) else None
        reader = _MEMBERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise UnsupportedField.at(
                f"{at}.type", ": a namespace holds tools of type 'function' and 'custom'."
            )
        declared = reader(member, at, name)
        tools.add(declared)
        echoed.append(dict(declared.echo))
    tools.add_echo({**tool, "description": tool.get("description") or "", "tools": echoed})


_MEMBERS: dict[str, Callable[[Fields, str, str], ClientTool]] = {
    "function": function_tool,
    "custom": custom_tool,
}


class ContainerTool(HostedTool):
    """The container of a tool server (`--tool-server`), which gpt-oss was trained to use. None runs here."""

    namespace = "container"
    types = ("container",)
    off = "This server has no container. Start it with --tool-server URL, for an MCP server that has one."
    in_system_message = True


OTHERS = ItemKind(
    items=(
        ItemType("agent_message", _agent_message, "amsg"),
        ItemType("configuration_update", _configuration_update),
        ItemType("image_generation_call", _generated_image, "ig", completed),
        ItemType(
            "additional_tools",
            _additional_tools,
            "at",
            lambda item: {"role": "developer", **item},
            loads_tools=True,
            in_head=True,
        ),
    ),
    tools=(ToolType("namespace", _read_namespace),),
)
