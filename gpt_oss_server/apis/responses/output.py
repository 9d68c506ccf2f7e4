"""What a response shows of the model's messages: the stream of items, Harmony's messages, metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt_oss_server.apis.responses.prepare import PreparedResponse
from gpt_oss_server.apis.responses.routes import Detail, HostedCalls, item_route
from gpt_oss_server.apis.responses.stream import ResponseStream
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.messages import messages_of
from gpt_oss_server.items.reasoning import REASONING_EVENTS, seal_reasoning
from gpt_oss_server.runs.background.tape import Tape
from gpt_oss_server.runs.work import Work
from gpt_oss_server.turns.debug import debug_compaction, debug_metadata
from gpt_oss_server.turns.transcript import Transcript


def new_stream(
    response: dict[str, Any],
    prepared: PreparedResponse,
    work: Work,
    tape: Tape | None,
    transcript: Callable[[], Transcript],
) -> ResponseStream:
    """`transcript` returns that of the turn whose messages the stream is fed."""
    detail, clients = _detail(prepared, work, transcript), prepared.tools.offered_clients
    route = item_route(work.ids, _hosted_calls(prepared, tape), detail, clients)
    return ResponseStream(response, route, work.clock, ends_cut_calls=work.model.settings.end_cut_calls)


def harmony_messages(transcript: Transcript, encoding: Encoding) -> dict[str, Any]:
    """The messages of the prompt and of the turn, including tool results."""
    output = [token for segment in transcript.segments for token in segment.tokens]
    return {
        "input_messages": messages_of(transcript.prompt, encoding),
        "output_messages": messages_of(output, encoding),
    }


def debug_of(encoding: Encoding, turn: Transcript, compaction: Transcript | None) -> dict[str, Any]:
    """The metadata of a request that wants to be debugged."""
    summarised = {} if compaction is None else debug_compaction(encoding, compaction)
    return {**debug_metadata(encoding, turn), **summarised}


def _detail(prepared: PreparedResponse, work: Work, transcript: Callable[[], Transcript]) -> Detail:
    request, model, sealer = prepared.request, work.model, work.keep.sealer

    def seal(message: MessageFinished) -> str:
        return seal_reasoning(sealer, transcript().spoken(message, model.renderer).tokens)

    sealed = "reasoning.encrypted_content" in (request.include or ())
    speller = Speller(model.encoding, as_ids=False)
    scored = request.scored if prepared.sampling.logprobs is not None else ()
    return Detail(
        speller=speller if "message" in scored else None,
        reasoning_speller=speller if "reasoning" in scored else None,
        call_speller=speller if "function_call" in scored else None,
        summary=request.summary,
        seal=seal if sealed else None,
        reasoning_events=REASONING_EVENTS[model.settings.event_names],
    )


def _hosted_calls(prepared: PreparedResponse, tape: Tape | None) -> HostedCalls:
    hosted = prepared.hosted
    return HostedCalls(
        kinds=hosted.kinds,
        runs=hosted.runs,
        names=hosted.servers.names,
        approvals=hosted.servers.approvals,
        approved=list(prepared.approval_ids),
        cite=hosted.cite if tape is None else tape.citing(hosted.cite),
        answers_json=prepared.wanted.answer is not None,
        conversation_of=hosted.conversation_of,
        include=frozenset(prepared.request.include or ()),
    )
