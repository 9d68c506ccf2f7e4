"""The hosted tools that one request uses, bound to the server's tools and to the conversation.

Takes the tools that `bind` found for the request. Returns declarations for the prompt, recipients for the
decoder, and `TurnTools` for the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final

from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import ToolNotAvailable
from gpt_oss_server.harmony.declarations import FUNCTIONS, FunctionTool, ToolNamespace
from gpt_oss_server.harmony.encoding import MESSAGE, Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import ToolSearch
from tools.tool import NOBODY, Client, Declaration, ToolOutput
from tools.toolbox import Toolbox

FUNCTION = f"{FUNCTIONS}."
Resolve = Callable[[int, int | None], tuple[str, str] | None]  # a citation's cursor and line → (url, title)
_CARRIED: Final = "system"  # no other segment of a history has this role
_BEGINNING = 12  # tokens of a result: enough for a cursor's brackets and nine digits


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of a request's MCP servers, and what its conversation has from them."""

    declarations: tuple[Declaration, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by namespace
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # recipient → (label, name)
    approvals: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # those that need consent
    missing: Mapping[str, str] = field(default_factory=dict)  # namespace of an unavailable server → why
    listings: tuple[Item, ...] = ()  # mcp_list_tools items
    carries: tuple[Segment, ...] = ()  # the same lists, for the conversation's later turns
    toolbox: Toolbox | None = None  # precedes the server's, and ends with the request
    close: Callable[[], None] = lambda: None  # in the background

    def check_listed(self) -> None:
        """Raises `ToolNotAvailable` where a server is missing: for APIs without an item that says so."""
        for why in self.missing.values():
            raise ToolNotAvailable(why, param="tools")


@dataclass(slots=True)
class Progress:
    """What changes while a request runs."""

    calls: int = 0
    resumed: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # options of new sessions


@dataclass(frozen=True, slots=True)
class HostedTools:
    """Implements `TurnTools`."""

    kinds: Kinds
    toolbox: Toolbox = field(default_factory=Toolbox)  # the server's
    client: Client = NOBODY  # for whom the calls run
    conversation: str = ""
    limit: int | None = None  # of calls
    declarations: tuple[Declaration, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by namespace
    containers: Mapping[str, str] = field(default_factory=dict)  # namespace → the conversation it runs in
    search: ToolSearch | None = None
    servers: ServerTools = field(default_factory=ServerTools)
    progress: Progress = field(default_factory=Progress)

    def in_conversation(self, conversation: str) -> HostedTools:
        """The same tools for a further choice of the request, whose calls count by themselves."""
        return replace(self, conversation=conversation, progress=Progress(resumed=self.progress.resumed))

    @property
    def in_system_message(self) -> tuple[ToolNamespace, ...]:
        return tuple(_namespace(d) for d in self.declarations if self._in_system_message(d))

    @property
    def in_developer_message(self) -> tuple[ToolNamespace, ...]:
        return tuple(_namespace(d) for d in self.declarations if not self._in_system_message(d))

    @property
    def recipients(self) -> frozenset[str]:
        return frozenset(
            name
            for d in self.declarations
            for name in ([f"{d.namespace}.{f.name}" for f in d.functions] or [d.namespace])
        )

    @property
    def namespaces(self) -> frozenset[str]:
        return frozenset(declaration.namespace for declaration in self.declarations)

    @property
    def _hosted(self) -> frozenset[str]:
        return self.namespaces & self.kinds.hosted.keys()

    def _in_system_message(self, declaration: Declaration) -> bool:
        tool = self.kinds.hosted.get(declaration.namespace)
        return tool is not None and tool.in_system_message

    def conversation_of(self, namespace: str) -> str:
        """The conversation whose session runs a tool's calls: this one, or that of a named container."""
        return self.containers.get(namespace, self.conversation)

    @property
    def cite(self) -> Resolve | None:
        """Resolves the citations of an answer; None if no tool of the request can be cited."""
        cited = [name for name in self._hosted if self.kinds.hosted[name].cites]
        return partial(self._resolve, cited[0]) if cited else None

    def _resolve(self, namespace: str, cursor: int, line: int | None) -> tuple[str, str] | None:
        # First the pages of this conversation: its branches share a session, and other servers have theirs.
        known = self.kinds.hosted[namespace].cited(self._options(namespace), cursor, line)
        if known is not None:
            return known
        session = self.toolbox.session(self.conversation, namespace)
        resolve = getattr(session, "resolve", None)  # a tool server's browser has none
        return resolve(cursor, line) if resolve is not None else None

    def resume_from(self, shown: Iterable[Segment], encoding: Encoding) -> None:
        """Lets new sessions continue from the results in the prompt, as conversations outlive sessions."""
        shown = tuple(shown)
        results = cache(lambda: beginnings_of_results(shown, encoding))
        carried = [tool for segment in shown if segment.role == _CARRIED for tool in segment.tools]
        for name in self._hosted:
            if resumed := self.kinds.hosted[name].resumed(results, carried):
                self.progress.resumed[name] = resumed

    @property
    def left_behind(self) -> list[Segment]:
        """What the turn's sessions leave for later turns, which may run on other servers; without tokens."""
        left = []
        for name in sorted(self._hosted):
            session = self.toolbox.session(self.conversation_of(name), name)
            record = self.kinds.hosted[name].carries(session, self._options(name))
            if record is not None:
                left.append(Segment(_CARRIED, (), tools=(record,)))
        return left

    def runs(self, recipient: str) -> bool:
        if self._searches(recipient):
            return True
        return recipient.partition(".")[0] in self.namespaces and recipient not in self.servers.approvals

    async def run(self, recipient: str, arguments: str) -> ToolOutput:
        if self.search is not None and self._searches(recipient):
            return self.search.run(arguments)
        namespace = recipient.partition(".")[0]
        if namespace not in self.namespaces:  # an approved call from a client's item
            unknown = f"{namespace[:80]!r} is not among the tools of this request."
            return ToolOutput(self.servers.missing.get(namespace, unknown), failed=True)
        if recipient not in self.servers.approvals:  # a call that the user approved does not count
            self.progress.calls += 1
            if self.limit is not None and self.progress.calls > self.limit:
                return ToolOutput(
                    f"The limit of {self.limit} tool call(s) in this response is reached, so this one was "
                    "not made. Answer with what you have.",
                    failed=True,
                )
        return await self._run(namespace, recipient, arguments)

    async def _run(self, namespace: str, recipient: str, arguments: str) -> ToolOutput:
        toolbox, conversation = self.servers.toolbox or self.toolbox, self.conversation_of(namespace)
        options = self._options(namespace)
        return await toolbox.run(conversation, recipient, arguments, options, client=self.client)

    def _options(self, namespace: str) -> Mapping[str, Any]:
        return {**self.options.get(namespace, {}), **self.progress.resumed.get(namespace, {})}

    def replayed(self, recipient: str) -> None:
        """Counts a call that an earlier attempt of this response made."""
        if recipient not in self.servers.approvals and not self._searches(recipient):
            self.progress.calls += 1

    async def repeat(self, recipient: str, arguments: str) -> None:
        """Makes a call of an earlier attempt again for what it leaves in its session; it does not count."""
        if not self._searches(recipient):
            await self._run(recipient.partition(".")[0], recipient, arguments)

    def repeatable(self, recipient: str) -> bool:
        """Whether a call that was interrupted may be made again without harm."""
        tool = self.kinds.called(recipient)
        return self._searches(recipient) or (tool is not None and tool.repeatable)

    def _searches(self, recipient: str) -> bool:
        return self.search is not None and recipient == self.search.recipient

    async def close(self, *, keeps_conversation: bool) -> None:
        if not keeps_conversation:
            self.toolbox.forget(self.conversation)
        self.servers.close()


def beginnings_of_results(shown: Iterable[Segment], encoding: Encoding) -> list[str]:
    """The header of each tool result, and the first tokens of its text."""
    results = [segment.tokens for segment in shown if segment.role == "tool"]
    return [encoding.decode(tokens[: tokens.index(MESSAGE) + 1 + _BEGINNING]) for tokens in results]


def known_recipients(tools: RequestTools, hosted: HostedTools) -> Recipients:
    """The recipients that the decoder may find in the model's headers."""
    functions = {r.removeprefix(FUNCTION) for r in tools.offered_clients if r.startswith(FUNCTION)}
    others = {recipient for recipient in tools.offered_clients if not recipient.startswith(FUNCTION)}
    return Recipients(frozenset(functions), hosted.recipients | others, may_call=tools.offered)


def _namespace(declaration: Declaration) -> ToolNamespace:
    functions = tuple(FunctionTool(f.name, f.description, f.parameters) for f in declaration.functions)
    return ToolNamespace(declaration.namespace, declaration.description, functions)
