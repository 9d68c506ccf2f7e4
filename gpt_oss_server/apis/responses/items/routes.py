"""Decides which item a message becomes: one table, consulted once per message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpt_oss_server.apis.responses.items.builders import MessageBuilder
from gpt_oss_server.apis.responses.items.client_builders import client_builder, unknown_call
from gpt_oss_server.apis.responses.items.reasoning import REASONING_EVENTS, ReasoningBuilder, Seal
from gpt_oss_server.apis.responses.items.summary import Summary, SummaryKind
from gpt_oss_server.apis.responses.items.tool_builders import McpApprovalBuilder, McpCallBuilder
from gpt_oss_server.content.logprobs import Scores, Speller, TextScores
from gpt_oss_server.content.tools import ClientTool
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import ItemBuilder
from gpt_oss_server.items.kind import HostedCall
from gpt_oss_server.items.table import BY_NAMESPACE

if TYPE_CHECKING:
    from tools.browser.citations import Resolve

ItemRoute = Callable[[Header], ItemBuilder]


@dataclass(frozen=True, slots=True)
class HostedCalls:
    """The facts of a request that shape the items of calls that run here."""

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


def _to_user(ids: Ids, hosted: HostedCalls, detail: Detail) -> dict[str, Callable[[], ItemBuilder]]:
    """The factories of builders for messages to the user, by channel."""
    cite, speller = hosted.cite, detail.speller

    def message(phase: str) -> ItemBuilder:
        scores = Scores(speller) if speller is not None else None
        if cite is None:
            return MessageBuilder(ids("msg"), phase, scores)
        # A late import: it loads the browser's packages.
        from gpt_oss_server.apis.responses.items.citations import CitedMessageBuilder

        in_json = hosted.answers_json and phase == "final_answer"
        return CitedMessageBuilder(ids("msg"), phase, cite, scores, in_json=in_json)

    def reasoning() -> ItemBuilder:
        summary = None if detail.summary is None else Summary(detail.summary)
        speller = detail.reasoning_speller
        scores = None if speller is None else TextScores(speller)
        return ReasoningBuilder(ids("rs"), summary, detail.seal, detail.reasoning_events, scores)

    return {
        "analysis": reasoning,
        "commentary": lambda: message("commentary"),
        "final": lambda: message("final_answer"),
    }


def item_route(
    ids: Ids,
    hosted: HostedCalls | None = None,
    detail: Detail | None = None,
    clients: Mapping[str, ClientTool] | None = None,
) -> ItemRoute:
    hosted, clients, detail = hosted or HostedCalls(), clients or {}, detail or Detail()
    to_user, speller = _to_user(ids, hosted, detail), detail.call_speller

    def route(header: Header) -> ItemBuilder:
        recipient = header.recipient
        if recipient is None:
            return to_user[header.channel]()
        namespace, _, function = recipient.partition(".")
        label, name = hosted.names.get(recipient, (namespace, function))
        approval = next((each for each in hosted.approved if each[0] == recipient), None)
        if approval is not None:
            hosted.approved.remove(approval)
            return McpCallBuilder(ids("mcp"), label, name, approval[1])
        if recipient in hosted.approvals:
            cut_off = McpCallBuilder(ids("mcp"), label, name)
            return McpApprovalBuilder(ids("mcpr"), label, name, cut_off)
        if recipient in clients:
            return client_builder(ids, clients[recipient], here=hosted.runs(recipient), speller=speller)
        if not hosted.runs(recipient):
            return unknown_call(ids, recipient, speller)
        tool = BY_NAMESPACE.get(namespace)
        if tool is not None and tool.item_type is not None:
            conversation = hosted.conversation_of(namespace)
            return tool.item(HostedCall(ids(tool.id_prefix), function, conversation, hosted.include))
        return McpCallBuilder(ids("mcp"), label, name)

    return route
