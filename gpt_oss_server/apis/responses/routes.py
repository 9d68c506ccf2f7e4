"""Decides which item a message becomes: one table, consulted once per message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.content.tools import ClientTool
from gpt_oss_server.harmony.events import Channel, Header
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import ItemBuilder
from gpt_oss_server.items.function_call import FunctionCallBuilder, unknown_function
from gpt_oss_server.items.hosted import HostedCall
from gpt_oss_server.items.mcp import McpApprovalBuilder, McpCallBuilder
from gpt_oss_server.items.message import message
from gpt_oss_server.items.reasoning import REASONING_EVENTS, Seal, SummaryKind, reasoning
from gpt_oss_server.items.table import Kinds

if TYPE_CHECKING:
    from tools.browser.citations import Resolve

ItemRoute = Callable[[Header], ItemBuilder]


@dataclass(frozen=True, slots=True)
class HostedCalls:
    """The facts of a request that shape the items of calls that run here."""

    kinds: Kinds = field(default_factory=Kinds.of)
    runs: Callable[[str], bool] = lambda recipient: False
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # recipient → (server label, tool)
    # Likewise, for calls that need approval.
    approvals: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    approved: list[tuple[str, str]] = field(default_factory=list)  # (recipient, id of its approval request)
    cite: Resolve | None = None  # resolves a citation's cursor; None: no citations
    answers_json: bool = False  # the request wants a JSON answer
    conversation_of: Callable[[str], str] = lambda namespace: ""  # whose session runs the calls
    include: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Detail:
    """What a request wants of messages and reasoning in addition to their text."""

    speller: Speller | None = None  # of the log-probabilities of messages to the user
    reasoning_speller: Speller | None = None  # of those of reasoning
    call_speller: Speller | None = None  # of those of calls that the client runs
    summary: SummaryKind | None = None  # of reasoning
    seal: Seal | None = None  # seals a reasoning message so that only this server can read it
    reasoning_events: str = REASONING_EVENTS["openai"]


def item_route(
    ids: Ids,
    hosted: HostedCalls | None = None,
    detail: Detail | None = None,
    clients: Mapping[str, ClientTool] | None = None,
) -> ItemRoute:
    hosted, clients, detail = hosted or HostedCalls(), clients or {}, detail or Detail()

    def to_user(channel: Channel) -> ItemBuilder:
        if channel == "analysis":
            return reasoning(
                ids, detail.summary, detail.seal, detail.reasoning_events, detail.reasoning_speller
            )
        phase = "final_answer" if channel == "final" else channel
        return message(ids, phase, detail.speller, hosted.cite, answers_json=hosted.answers_json)

    def route(header: Header) -> ItemBuilder:
        recipient = header.recipient
        if recipient is None:
            return to_user(header.channel)
        namespace, _, function = recipient.partition(".")
        label, name = hosted.names.get(recipient, (namespace, function or namespace))
        approval = next((call for call in hosted.approved if call[0] == recipient), None)
        if approval is not None:
            hosted.approved.remove(approval)
            return McpCallBuilder(ids, label, name, approval[1])
        if recipient in hosted.approvals:
            return McpApprovalBuilder(ids, label, name)
        if recipient in clients:
            return _client_call(hosted.kinds, ids, clients[recipient], detail.call_speller)
        if not hosted.runs(recipient):
            return FunctionCallBuilder(ids, unknown_function(recipient), detail.call_speller)
        tool = hosted.kinds.called(recipient)
        if tool is not None and tool.item_type is not None:
            conversation = hosted.conversation_of(namespace)
            return tool.item(HostedCall(ids(tool.id_prefix), function, conversation, hosted.include))
        return McpCallBuilder(ids, label, name)

    return route


def _client_call(kinds: Kinds, ids: Ids, tool: ClientTool, speller: Speller | None) -> ItemBuilder:
    build = kinds.tools[tool.kind].build
    assert build is not None, "only tools that clients run become a `ClientTool`"
    return build(ids, tool, speller)
