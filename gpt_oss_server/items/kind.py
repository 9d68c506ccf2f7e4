"""The contract of item kinds: one frozen row for each, which all rooms read.

A row has the types of its items and of the tools that declare it: how each is read, listed and
built. docs/extending.md adds one. `hosted` is the contract of kinds whose calls run on this server.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic_core import to_json

from gpt_oss_server.content.tools import ClientTool, RequestTools, Tool
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Item, ItemBuilder, ShapedCall
from gpt_oss_server.items.conversation import ReadItem, read_action, read_json_output

ReadTool = Callable[[Tool, str, RequestTools], None]
"""Adds a tool at this place of the body to the request's tools, or raises a 400."""
BuildCall = Callable[[Ids, ClientTool], ItemBuilder]
Change = Callable[[Item], Item]


def unchanged(item: Item) -> Item:
    return item


@dataclass(frozen=True, slots=True)
class ItemType:
    """Items of one `type`."""

    name: str
    read: ReadItem
    """Adds an item to the conversation. The API reference has its docstring."""
    prefix: str = "item"
    """The prefix of ids."""
    listed: Change = unchanged
    """Adds the fields that lists have and clients may leave out."""
    needs_output: bool = False
    """Whether it is a call that the client must answer."""
    loads_tools: bool = False
    """Whether its `tools` join those of the request."""
    in_head: bool = False
    """Whether it belongs to a conversation's head, like a developer's message, if it follows such items."""


@dataclass(frozen=True, slots=True)
class ToolType:
    """Tools that requests declare with one `type`."""

    name: str
    read: ReadTool
    """Reads the tool. The API reference has its docstring."""
    build: BuildCall | None = None
    """Builds the item of a call that the client runs."""
    namespace: str | None = None
    """The model's name for the tool, where this server runs it."""


@dataclass(frozen=True, slots=True)
class ItemKind:
    """All that belongs to one kind: its items, and the tools whose calls they are."""

    items: tuple[ItemType, ...] = ()
    tools: tuple[ToolType, ...] = ()


def completed(item: Item) -> Item:
    """A call or an output, whose status clients may leave out."""
    return {**item, "status": item.get("status") or "completed"}


def with_json_arguments(item: Item) -> Item:
    """A call whose arguments clients may send as an object."""
    arguments = item.get("arguments")
    return {**item, "arguments": to_json(arguments).decode()} if isinstance(arguments, dict) else item


def shaped_kind(
    tool: str,
    action: str,
    build: type[ShapedCall],
    output_prefix: str,
    read_tool: ReadTool,
    *,
    listed: Change = completed,
    listed_output: Change = completed,
) -> ItemKind:
    """A tool that the client runs, whose shape the API fixes; `action` is the key of a call's arguments."""
    call = ItemType(f"{tool}_call", read_action(tool, action), build.prefix, listed, needs_output=True)
    output = ItemType(f"{tool}_call_output", read_json_output, output_prefix, listed_output)
    return ItemKind((call, output), (ToolType(tool, read_tool, build),))
