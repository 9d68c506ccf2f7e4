"""The contract of a hosted tool: one row of the table.

A row answers what each room asks of a hosted tool: the settings in, the tool out; a request's tool in, its
options out; a call in, the builder of its item out. docs/extending.md adds one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from gpt_oss_server.harmony.events import Channel
from gpt_oss_server.item_builder import Item, ItemBuilder
from gpt_oss_server.settings import Settings
from tools.toolbox import Offer

Tool = Mapping[str, Any]
Maker = Callable[[], Awaitable[Offer | None]]


class Field(NamedTuple):
    """A field of a tool in a request: its type, and the words for that type in a 400."""

    name: str
    kind: type
    expected: str


@dataclass(frozen=True, slots=True)
class HostedCall:
    """What the item of a call is made of."""

    id: str
    function: str  # of the tool; "" for a tool that is called by its bare name
    conversation: str  # the conversation whose session runs the call
    include: frozenset[str]  # the request's `include`


@dataclass(frozen=True, slots=True)
class PastCall:
    """An item of an earlier call, read back as the model wrote the call and read its result."""

    function: str
    arguments: str
    result: str


class HostedTool:
    """A tool that this server runs. A subclass gives `namespace` and `types`, and overrides what differs."""

    namespace: ClassVar[str]
    """The model's name for it: recipients are `namespace.function`, or `namespace` alone."""
    types: ClassVar[tuple[str, ...]] = ()
    """The `type`s of a request's tool that mean it. Chat's `executed_tools` shows the first."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """The fields of a request's tool. They are checked, and passed to each call as its options."""
    off: ClassVar[str] = ""
    """The sentence of the 400 where the settings leave the tool off: it names the setting to change."""
    channel: ClassVar[Channel] = "commentary"
    """The channel on which the model calls it; on `analysis` the arguments are code, else JSON."""
    in_system_message: ClassVar[bool] = False
    """Whether the system message declares it, where gpt-oss was trained to see its own tools."""
    joins_others: ClassVar[bool] = False
    """Whether it is offered with any other hosted tool, though no request names it."""
    cites: ClassVar[bool] = False
    """Whether its sessions resolve the citations of an answer: `resolve(cursor, line)` → (url, title)."""
    item_type: ClassVar[str | None] = None
    """The type of its output item. None: an `mcp_call`, and `item` and `past_call` are not used."""
    id_prefix: ClassVar[str] = ""
    """What the ids of its items begin with."""
    includable: ClassVar[tuple[str, ...]] = ()
    """The values of a request's `include` that its item serves."""

    def maker(self, settings: Settings) -> Maker | None:
        """What makes the tool when the server has started; None where the settings leave it off.

        Raises ValueError or ToolUnavailable at once for settings that cannot work. The maker itself may take
        long. It raises ToolUnavailable where the tool cannot run on this machine.
        """
        return None

    def options(self, tool: Tool, where: str) -> Mapping[str, Any] | None:
        """The options of a request's tool, whose `fields` are checked; None: it is not offered after all."""
        return {each.name: tool[each.name] for each in self.fields if tool.get(each.name) is not None}

    def is_optional(self, tool: Tool) -> bool:
        """Whether a request that asks for it goes on without it, where the settings leave it off."""
        return False

    def echo(self, tool: Tool) -> dict[str, Any]:
        """The request's tool as the response shows it."""
        return dict(tool)

    def container(self, options: Mapping[str, Any]) -> str | None:
        """The container that the options name: its session runs the calls, in place of the conversation's."""
        return None

    def resumed(self, results: Callable[[], Sequence[str]]) -> Mapping[str, Any]:
        """Further options of each call, for a session that continues from the results that the prompt shows.

        `results` returns the header of each tool's result and the first tokens of its text.
        """
        return {}

    def item(self, call: HostedCall) -> ItemBuilder:
        """The builder of a call's item."""
        raise NotImplementedError

    def past_call(self, item: Item) -> PastCall:
        """The call that an item of an earlier response shows."""
        raise NotImplementedError
