"""Stores a finished turn: only what it adds to the history that it continued.

Takes a prepared request, its stream after the last event, and the generated segments. Stores the response and
appends its parts to its conversation. If the store no longer has the history that the turn continued, the
turn is stored with its whole history.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpt_oss_server.apis.responses.input import with_own_ids
from gpt_oss_server.apis.responses.past import Past
from gpt_oss_server.apis.responses.prepare import PreparedResponse
from gpt_oss_server.apis.responses.stream import ResponseStream
from gpt_oss_server.errors import ApiError, GenerationFailed, StoreUnavailable
from gpt_oss_server.harmony.events import ClosedBy
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import CUT_OFF, NOT_AWAITED, Renderer, unanswered
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.models.model import Model
from gpt_oss_server.runs.work import Work
from gpt_oss_server.stores.base import Append, ConversationPart, Item, Responses, StoredResponse
from gpt_oss_server.stores.chain import Call, UnknownParent
from gpt_oss_server.stores.kinds.keep import Keep
from gpt_oss_server.traces.document import origin_of
from gpt_oss_server.traces.packed import packed
from gpt_oss_server.traces.records import TraceRecord, Traces
from gpt_oss_server.turns.transcript import Transcript

_LARGE_TRACE = 100_000  # bytes of its record: packing takes a millisecond or two
_log = logging.getLogger(__name__)


def closing_results(transcript: Transcript, stream: ResponseStream, renderer: Renderer) -> list[Segment]:
    """Results in place of those that never come: of calls that were cut off, or that the end prevented.

    A client's whole call keeps waiting for its output, unless the response was cancelled or failed.
    """
    status = stream.response["status"]
    if status == "completed":
        return []
    waiting = unanswered(transcript.segments, renderer)
    of_client = set(stream.recipients.values()) if status == "incomplete" else set()
    awaiting_approval = {recipient for recipient, _ in stream.approvals.values()}
    last = transcript.messages[-1] if transcript.messages else None
    is_cut = last is not None and last.header.recipient is not None and last.closed_by is ClosedBy.TRUNCATED
    results = []
    for number, call in enumerate(waiting, 1):
        recipient = call.recipient or ""
        if is_cut and number == len(waiting):
            results.append(renderer.tool_result(recipient, CUT_OFF))
        elif recipient not in of_client | awaiting_approval:
            results.append(renderer.tool_result(recipient, NOT_AWAITED))
    return results


@dataclass(frozen=True)
class FinishedTurn:
    prepared: PreparedResponse
    stream: ResponseStream
    transcript: Transcript
    work: Work
    trace: bytes = b""

    async def keep(self, *, keeps: bool, adds: bool) -> None:
        """Stores the response if it `keeps`; with `adds`, appends the turn to its conversation."""
        named, keep = self.stream.response["conversation"], self.work.keep
        grows = named is not None and adds
        append = appended(named["id"], self._parts(), self.work.kinds, self.work.ids) if grows else None
        if keeps:
            await self._put(keep.responses, append)
            await announce(self.stream.response, keep, self.work.clock())
        elif append is not None:
            await keep.conversations.append(append)

    @cached_property
    def _generated(self) -> tuple[Segment, ...]:
        hosted, renderer = self.prepared.hosted, self.work.model.renderer
        closing = closing_results(self.transcript, self.stream, renderer)
        return (*hosted.servers.carries, *hosted.left_behind, *self.transcript.segments, *closing)

    async def _put(self, store: Responses, append: Append | None) -> None:
        past, prepared = self.prepared.past, self.prepared
        # The history is shorter after a compaction, or if the oldest turns did not fit and were dropped.
        continues = len(prepared.history) == len(past.history) + len(prepared.own)
        if continues:
            try:
                await store.put(self._stored(past, prepared.own), append)
                return
            except UnknownParent:
                pass
        await store.put(self._stored(Past(), prepared.history), append)

    def _stored(self, past: Past, input_segments: Sequence[Segment]) -> StoredResponse:
        """The response as a continuation of `past`."""
        prepared, stream = self.prepared, self.stream
        return StoredResponse(
            response=stream.response,
            input_items=prepared.items,
            parent=past.position,
            added=past.added((*input_segments, *self._generated), self._recipients, self._approvals),
            session=prepared.hosted.conversation,
            results=stream.results,
            trace=self.trace,
        )

    @property
    def _recipients(self) -> dict[str, str]:
        return {**self.prepared.call_recipients, **self.stream.recipients}

    @property
    def _approvals(self) -> dict[str, Call]:
        return {**self.prepared.approvals, **self.stream.approvals}

    def _parts(self) -> list[ConversationPart]:
        """The response's addition to its conversation: its input and its output."""
        prepared, past, stream = self.prepared, self.prepared.past, self.stream
        output = tuple(stream.response["output"])
        if any(item["type"] == "compaction" for item in output):  # its segments precede the input's
            added = past.added((*prepared.own, *self._generated), self._recipients, self._approvals)
            return [ConversationPart((*prepared.items, *output), added)]
        added = past.added(prepared.own, prepared.call_recipients, prepared.approvals)
        return [
            ConversationPart(prepared.items, added),
            ConversationPart(output, Past().added(self._generated, stream.recipients, stream.approvals)),
        ]


async def announce(response: dict[str, Any], keep: Keep, now: float) -> None:
    """Lets webhooks know that a background response has ended. It may be called again."""
    if response["background"]:
        await keep.webhooks.add(f"response.{response['status']}", response["id"], int(now))


def begin_trace(
    traces: Traces, owner: str, response: dict[str, Any], prepared: PreparedResponse, turn: Transcript
) -> None:
    if traces.enabled:
        request = prepared.request.model_dump(exclude_unset=True, mode="json")
        record = TraceRecord(request, response, prepared.recipients, turn, owner=owner)
        traces.begin(response["id"], record)


def appended(conversation_id: str, parts: Sequence[ConversationPart], kinds: Kinds, ids: Ids) -> Append:
    """Parts to append to a conversation. Items whose ids it already has get new ones."""

    def new_id(item: Item) -> str:
        [renamed] = with_own_ids(kinds, [item], {item["id"]}, ids)
        return str(renamed["id"])

    return Append(conversation_id, tuple(parts), new_id)


async def packed_trace(
    traces: Traces, response_id: str, prepared: PreparedResponse, model: Model, *, stored: bool
) -> bytes:
    """The trace of an ended response, for a store that keeps traces. A thread packs what is long."""
    record = traces.finish(response_id, prepared.history, len(model.renderer.cue))
    if record is None or not stored:
        return b""
    origin = origin_of(model.info)
    if record.size < _LARGE_TRACE:
        return packed(record, origin)
    return await asyncio.to_thread(packed, record, origin)


def not_stored(response_id: str, error: Exception) -> ApiError:
    if isinstance(error, StoreUnavailable):
        _log.error("The response %s could not be stored: %s", response_id, error)
        return StoreUnavailable(f"The response could not be stored. {error}")
    _log.error("The response %s could not be stored.", response_id, exc_info=error)
    return GenerationFailed("The response could not be stored. The server's log says why.")
