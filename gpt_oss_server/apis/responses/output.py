"""What a response shows of the model's messages: an item for each.

Takes a prepared request and the header of each message. Returns the stream of its response, and for each
header the builder of the item that the message becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpt_oss_server.apis.responses.prepare import PreparedResponse
from gpt_oss_server.apis.responses.stream import ResponseStream
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.content.tools import ClientTool
from gpt_oss_server.harmony.events import Channel, Header, MessageFinished
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import ItemBuilder
from gpt_oss_server.items.function_call import FunctionCallBuilder, unknown_function
from gpt_oss_server.items.hosted import HostedCall
from gpt_oss_server.items.mcp import McpApprovalBuilder, McpCallBuilder
from gpt_oss_server.items.message import message
from gpt_oss_server.items.reasoning import REASONING_EVENTS, ReasoningBuilder, Seal, Summary, seal_reasoning
from gpt_oss_server.runs.background.tape import Tape
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.turns.transcript import Transcript

if TYPE_CHECKING:
    from tools.browser.citations import Resolve


@dataclass(frozen=True, slots=True)
class Detail:
    """What a request wants of its items in addition to their text."""

    include: frozenset[str] = frozenset()
    approved: tuple[tuple[str, str], ...] = ()  # (recipient, id of the request) of calls to run first
    cite: Resolve | None = None  # resolves a citation's cursor; None: no citations
    answers_json: bool = False  # the request wants a JSON answer
    speller: Speller | None = None  # of the log-probabilities of messages to the user
    reasoning_speller: Speller | None = None  # of those of reasoning
    summary: bool = False  # of reasoning
    seal: Seal | None = None  # seals a reasoning message so that only this server can read it
    reasoning_events: str = REASONING_EVENTS["openai"]


def new_stream(
    response: dict[str, Any],
    prepared: PreparedResponse,
    work: Work,
    tape: Tape | None,
    transcript: Callable[[], Transcript],
) -> ResponseStream:
    """`transcript` returns that of the turn whose messages the stream is fed."""
    detail, clients = _detail(prepared, work, tape, transcript), prepared.tools.offered_clients
    route = item_route(work.ids, prepared.hosted, detail, clients)
    return ResponseStream(response, route, work.clock, ends_cut_calls=work.model.settings.end_cut_calls)


def _detail(
    prepared: PreparedResponse, work: Work, tape: Tape | None, transcript: Callable[[], Transcript]
) -> Detail:
    request, model, sealer = prepared.request, work.model, work.keep.sealer

    def seal(message: MessageFinished) -> str:
        return seal_reasoning(sealer, transcript().spoken(message, model.renderer).tokens)

    sealed = "reasoning.encrypted_content" in (request.include or ())
    speller = Speller(model.encoding)
    scored = request.scored if prepared.sampling.logprobs is not None else ()
    cite = prepared.hosted.cite
    return Detail(
        include=frozenset(request.include or ()),
        approved=tuple(prepared.approval_ids),
        cite=cite if tape is None else tape.citing(cite),
        answers_json=prepared.wanted.answer is not None,
        speller=speller if "message" in scored else None,
        reasoning_speller=speller if "reasoning" in scored else None,
        summary=request.summary is not None,
        seal=seal if sealed else None,
        reasoning_events=REASONING_EVENTS[model.settings.event_names],
    )


def item_route(
    ids: Ids, hosted: HostedTools, detail: Detail, clients: Mapping[str, ClientTool]
) -> Callable[[Header], ItemBuilder]:
    """Decides which item a message becomes; called once for each."""
    kinds, servers, approved = hosted.kinds, hosted.servers, list(detail.approved)

    def to_user(channel: Channel) -> ItemBuilder:
        if channel == "analysis":
            summary, speller = Summary() if detail.summary else None, detail.reasoning_speller
            return ReasoningBuilder(ids, summary, detail.seal, detail.reasoning_events, speller)
        phase = "final_answer" if channel == "final" else channel
        return message(ids, phase, detail.speller, detail.cite, answers_json=detail.answers_json)

    def route(header: Header) -> ItemBuilder:
        recipient = header.recipient
        if recipient is None:
            return to_user(header.channel)
        namespace, _, function = recipient.partition(".")
        label, name = servers.names.get(recipient, (namespace, function or namespace))
        approval = next((call for call in approved if call[0] == recipient), None)
        if approval is not None:
            approved.remove(approval)
        elif recipient in servers.approvals:
            return McpApprovalBuilder(ids, label, name)
        elif recipient in clients:
            build = kinds.tools[clients[recipient].kind].build
            assert build is not None, "only tools that clients run become a `ClientTool`"
            return build(ids, clients[recipient])
        elif not hosted.runs(recipient):
            return FunctionCallBuilder(ids, unknown_function(recipient))
        tool = kinds.called(recipient)
        if tool is not None and tool.item_type is not None:
            conversation = hosted.conversation_of(namespace)
            options = hosted.options.get(namespace, {})
            resumed = "" if approval is None else approval[1]
            call = HostedCall(ids(tool.id_prefix), function, conversation, detail.include, options, resumed)
            return tool.item(call)
        return McpCallBuilder(ids, label, name, None if approval is None else approval[1])

    return route
