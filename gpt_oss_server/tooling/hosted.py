"""The tools of ours that one request uses, bound to the server's and to the conversation.

In: what the request asks for and what the server offers. Out: declarations for the prompt, recipients for
the decoder, and `TurnTools` for the turn. A tool that is asked for and not offered is a 400 that says what to
set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.harmony.declarations import FUNCTIONS, FunctionTool, ToolNamespace
from gpt_oss_server.harmony.encoding import MESSAGE, Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.tooling.requested import RequestTools
from gpt_oss_server.tooling.search import ToolSearch
from tools.tool import Declaration, ToolOutput
from tools.toolbox import Toolbox

FUNCTION = f"{FUNCTIONS}."
# What the model reads of a call whose result its client has not kept.
RESULT_LOST = "The user approved this call and it was made. Its result is no longer known."
_BROWSED = re.compile(r"<\|start\|>browser\.\w+ to=assistant<\|channel\|>\w+<\|message\|>\[(\d{1,9})\]")
_CURSOR_TOKENS = 12  # enough for the brackets and nine digits
_IN_SYSTEM_MESSAGE = frozenset({"browser", "python", "container"})  # where the model was trained to see them


@dataclass(slots=True)
class HostedTools:
    """Implements `TurnTools` once `conversation` is set."""

    toolbox: Toolbox  # the server's
    declarations: tuple[Declaration, ...] = ()
    options: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    listings: list[dict[str, Any]] = field(default_factory=list)  # mcp_list_tools items, ready to be sent
    approvals: dict[str, tuple[str, str]] = field(default_factory=dict)  # recipient → (label, name)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)  # recipient → (label, name)
    missing: dict[str, str] = field(default_factory=dict)  # namespace of a server that is not there → why
    conversation: str = ""
    container: str = ""  # the conversation whose python is used, where the request names a container
    search: ToolSearch | None = None
    limit: int | None = None
    own: Toolbox | None = None  # tools of this request alone, before the server's; they end with it
    leave: Callable[[Coroutine[Any, Any, None]], None] | None = None  # closes those
    _calls: int = 0

    @property
    def in_system_message(self) -> tuple[ToolNamespace, ...]:
        return tuple(_namespace(d) for d in self.declarations if d.namespace in _IN_SYSTEM_MESSAGE)

    @property
    def in_developer_message(self) -> tuple[ToolNamespace, ...]:
        return tuple(_namespace(d) for d in self.declarations if d.namespace not in _IN_SYSTEM_MESSAGE)

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
    def python_conversation(self) -> str:
        return self.container or self.conversation

    def cite(self, cursor: int, line: int | None) -> tuple[str, str] | None:
        """(url, title) of what a citation stands for, as far as the conversation's browser knows."""
        session = self.toolbox.session(self.conversation, "browser")
        resolve = getattr(session, "resolve", None)  # a browser of another server has none
        return resolve(cursor, line) if resolve is not None else None

    def count_on_from(self, shown: Iterable[Segment], encoding: Encoding) -> None:
        """A new browser session gives no cursor again that the model has read: the model cites by them.

        Sessions end, at the latest with the server, and conversations continue.
        """
        if "browser" in self.namespaces:
            found = [_BROWSED.match(beginning) for beginning in beginnings_of_results(shown, encoding)]
            newest = max((int(cursor[1]) for cursor in found if cursor), default=-1)
            options = self.options.get("browser", {})
            self.options["browser"] = {**options, "first_cursor": newest + 1}

    def runs(self, recipient: str) -> bool:
        if self._searches(recipient):
            return True
        return recipient.partition(".")[0] in self.namespaces and recipient not in self.approvals

    async def run(self, recipient: str, arguments: str) -> ToolOutput:
        if self.search is not None and self._searches(recipient):
            return self.search.run(arguments)
        namespace = recipient.partition(".")[0]
        if namespace not in self.namespaces:  # an approved call, whose item the client has written
            said = f"{namespace[:80]!r} is not among the tools of this request."
            return ToolOutput(self.missing.get(namespace, said), failed=True)
        if recipient not in self.approvals:  # what the user has approved is no attempt of the model's
            self._calls += 1
            if self.limit is not None and self._calls > self.limit:
                return ToolOutput(
                    f"The limit of {self.limit} tool call(s) in this response is reached, so this one was "
                    "not made. Answer with what you have.",
                    failed=True,
                )
        options = self.options.get(namespace)
        toolbox = self.own if self.own is not None else self.toolbox
        conversation = self.python_conversation if namespace == "python" else self.conversation
        return await toolbox.run(conversation, recipient, arguments, options)

    def _searches(self, recipient: str) -> bool:
        return self.search is not None and recipient == self.search.recipient

    async def close(self, *, keeps_conversation: bool) -> None:
        if not keeps_conversation:
            self.toolbox.forget(self.conversation)
        if self.own is not None and self.leave is not None:
            self.leave(self.own.close())


def beginnings_of_results(shown: Iterable[Segment], encoding: Encoding) -> list[str]:
    """The header of each tool's result, and as much of its text as a cursor takes."""
    results = [segment.tokens for segment in shown if segment.role == "tool"]
    return [encoding.decode(tokens[: tokens.index(MESSAGE) + 1 + _CURSOR_TOKENS]) for tokens in results]


def known_recipients(tools: RequestTools, hosted: HostedTools) -> Recipients:
    """Whom the model may mean, for the decoder."""
    functions = {r.removeprefix(FUNCTION) for r in tools.offered_clients if r.startswith(FUNCTION)}
    others = {recipient for recipient in tools.offered_clients if not recipient.startswith(FUNCTION)}
    return Recipients(frozenset(functions), hosted.recipients | others)


def _namespace(declaration: Declaration) -> ToolNamespace:
    functions = tuple(FunctionTool(f.name, f.description, f.parameters) for f in declaration.functions)
    return ToolNamespace(declaration.namespace, declaration.description, functions)
