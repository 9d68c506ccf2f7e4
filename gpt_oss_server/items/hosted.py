"""The contract of hosted tools: kinds whose calls run on this server.

A row maps the settings to the tool, a request's tool to its options, and a call to the builder of its item.
docs/extending.md shows how to add one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from gpt_oss_server.content.tools import RequestTools, Tool, check
from gpt_oss_server.harmony.events import Channel
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.builder import Item, ItemBuilder
from gpt_oss_server.items.conversation import NOT_KEPT, Conversation, ReadItem
from gpt_oss_server.items.kind import ItemKind, ItemType, ReadTool, ToolType, completed
from gpt_oss_server.settings import Settings
from tools.tool import Declaration
from tools.toolbox import Offer

Maker = Callable[[], Awaitable[Offer | None]]


class Field(NamedTuple):
    """A field of a request's tool: its type, and the words for that type in a 400."""

    name: str
    kind: type
    expected: str


@dataclass(frozen=True, slots=True)
class HostedCall:
    """The data for a call's item."""

    id: str
    function: str  # "" for a tool that the model calls by its bare name
    conversation: str  # the conversation whose session runs the call
    include: frozenset[str]  # the request's `include`
    options: Mapping[str, Any] = field(default_factory=dict)
    resumed: str = ""  # the id under which it waited, if it goes on


@dataclass(frozen=True, slots=True)
class PastCall:
    """An earlier call, read from its item: the call as the model wrote it, and the result it received."""

    function: str
    arguments: str
    result: str


class HostedTool:
    """A tool that this server runs. A subclass sets `namespace` and `types`, and overrides the defaults."""

    namespace: ClassVar[str]
    """The model's name for it: recipients are `namespace.function`, or `namespace` alone."""
    types: ClassVar[tuple[str, ...]] = ()
    """The `type`s by which requests name it. Chat's `executed_tools` shows the first."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """The fields of a request's tool. The server checks them and passes them to each call as options."""
    off: ClassVar[str] = ""
    """The text of the 400 if the settings leave the tool off; it names the setting to change."""
    channel: ClassVar[Channel] = "commentary"
    """The channel on which the model calls it; on `analysis` the arguments are code, else JSON."""
    in_system_message: ClassVar[bool] = False
    """Whether the system message declares it, as gpt-oss's own tools were in training."""
    cites: ClassVar[bool] = False
    """Whether its sessions resolve the citations of an answer: `resolve(cursor, line)` → (url, title)."""
    repeatable: ClassVar[bool] = False
    """Whether a call that may have been made, when its server stopped, can be made again without harm."""
    item_type: ClassVar[str | None] = None
    """The type of its output item. None: an `mcp_call`, and `item` and `past_call` are not used."""
    id_prefix: ClassVar[str] = ""
    """The prefix of its items' ids."""
    includable: ClassVar[tuple[str, ...]] = ()
    """The values of a request's `include` that its item supports."""

    def maker(self, settings: Settings) -> Maker | None:
        """The function that makes the tool after the server starts; None if the settings leave it off.

        Raises ValueError or ToolUnavailable immediately for settings that cannot work. The returned function
        may take long. It raises ToolUnavailable if the tool cannot run on this machine.
        """
        return None

    def options(self, tool: Tool, where: str) -> Mapping[str, Any] | None:
        """The options of a request's tool, after the check of its `fields`; None: do not offer the tool."""
        return {field.name: tool[field.name] for field in self.fields if tool.get(field.name) is not None}

    def is_optional(self, tool: Tool) -> bool:
        """Whether a request that names it proceeds without it if the settings leave it off."""
        return False

    def shown_types(self, *, here: bool) -> Sequence[str]:
        """The types that requests may have, one for each thing that it does, here or on a tool server."""
        return self.types[:1]

    def lacks(self, options: Mapping[str, Any], *, here: bool) -> bool:
        """Whether the tool, which runs here or on a tool server, cannot do what the options wish."""
        return False

    async def bound(self, options: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
        """The options for an owner's request. Raises an `ApiError` for what the owner does not have."""
        return options

    def declared(self, declaration: Declaration, options: Mapping[str, Any]) -> Declaration:
        """The tool as it is declared to the model in a request with these options."""
        return declaration

    def echo(self, tool: Tool) -> dict[str, Any]:
        """The request's tool as the response shows it."""
        return dict(tool)

    def container(self, options: Mapping[str, Any]) -> str | None:
        """The container in the options: its session runs the calls instead of the conversation's session."""
        return options.get("container")

    def resumed(
        self, results: Callable[[], Sequence[str]], carried: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """More options for each call, so that a new session continues from the results in the prompt.

        `results` returns the header of each tool's result and the first tokens of its text. `carried` is what
        `carries` returned at the end of earlier turns.
        """
        return {}

    def carries(self, session: Any, options: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What later turns need of this turn's session, as plain data with the tool's own `type`."""
        return None

    def cited(self, options: Mapping[str, Any], cursor: int, line: int | None) -> tuple[str, str] | None:
        """The (url, title) of a citation of an earlier turn, by what it carried."""
        return None

    def kind(self) -> ItemKind:
        """Its row of the table."""
        types = tuple(ToolType(name, _reader(self), namespace=self.namespace) for name in self.types)
        if self.item_type is None:
            return ItemKind(tools=types)
        item = ItemType(self.item_type, _call_reader(self), self.id_prefix, listed=completed)
        return ItemKind((item,), types)

    def item(self, call: HostedCall) -> ItemBuilder:
        raise NotImplementedError

    def past_call(self, item: Item) -> PastCall:
        """The call in an item of an earlier response."""
        raise NotImplementedError


def _reader(hosted: HostedTool) -> ReadTool:
    def read(tool: Tool, where: str, tools: RequestTools) -> None:
        """A tool that this server runs, if its operator has enabled it."""
        for key, kind, expected in hosted.fields:
            check(tool, where, key, kind, expected)
        if hosted.is_optional(tool):
            tools.optional.add(hosted.namespace)
        options = hosted.options(tool, where)
        if options is not None:  # several tools of a request may be one for the model
            tools.hosted[hosted.namespace] = {**tools.hosted.get(hosted.namespace, {}), **options}
        tools.add_echo(hosted.echo(tool))

    return read


def _call_reader(hosted: HostedTool) -> ReadItem:
    def read(item: Item, where: str, conversation: Conversation) -> None:
        """A call of a hosted tool, with its result if the item carries it or the server still has it."""
        past = hosted.past_call(item)
        recipient = f"{hosted.namespace}.{past.function}" if past.function else hosted.namespace
        result = conversation.results.get(str(item.get("id"))) or past.result or NOT_KEPT
        call = past_segments(conversation.renderer, hosted, recipient, past.arguments, result)
        conversation.segments += call

    return read


def past_segments(
    renderer: Renderer, tool: HostedTool | None, recipient: str, arguments: str, result: str
) -> tuple[Segment, Segment]:
    """A call of an earlier turn and its result as the model saw them; `tool` is None for an MCP server's."""
    channel = "commentary" if tool is None else tool.channel
    form = "code" if channel == "analysis" else "json"
    call = renderer.call(recipient, arguments, channel=channel, content_type=form)
    return call, renderer.tool_result(recipient, result, channel=channel)
