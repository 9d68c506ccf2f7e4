"""One run: generates a prepared request and streams it as batches of events.

Takes a `Prepared`. Returns batches of Responses events, the last of which has the only terminal event, and
keeps `response`, the object in its current state. If anything fails, it closes the open items and ends the
response as failed. Closing the iterator cancels the generation; `stopped` then returns the events that end
the response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from gpt_oss_server.apis.responses.compaction import Compaction
from gpt_oss_server.apis.responses.keeping import FinishedTurn, closing_results
from gpt_oss_server.apis.responses.prepare import Prepared
from gpt_oss_server.apis.responses.resource import usage_of
from gpt_oss_server.apis.responses.routes import Detail, HostedCalls, item_route
from gpt_oss_server.apis.responses.stream import Event, ResponseStream, Status
from gpt_oss_server.caller.record import note_answer
from gpt_oss_server.caller.reservation import Spending, no_spending
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.errors import ApiError, GenerationFailed, StoreUnavailable, from_exception
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.messages import messages_of
from gpt_oss_server.items.compaction import CompactionBuilder, compaction_item
from gpt_oss_server.items.mcp import McpListBuilder
from gpt_oss_server.items.reasoning import REASONING_EVENTS, seal_reasoning
from gpt_oss_server.runs.background.tape import Tape, TapedTools
from gpt_oss_server.runs.counters import outcome
from gpt_oss_server.runs.observed import Usage
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.work import Work
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.events import Continuation, LeaseLost
from gpt_oss_server.traces.document import origin_of
from gpt_oss_server.traces.packed import packed
from gpt_oss_server.traces.records import TraceRecord
from gpt_oss_server.turns.debug import debug_compaction, debug_metadata, log_turn
from gpt_oss_server.turns.events import TurnEvent, TurnFinished
from gpt_oss_server.turns.plan import TurnPlan
from gpt_oss_server.turns.prompt import begun_call, ignored_fields
from gpt_oss_server.turns.stop_ids import own_stops
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.turn import Turn
from inference.engine import Finish

# Clients retry responses of any other status with the same input. `_keep` has one exception.
_ADDED_TO_CONVERSATION = ("completed", "incomplete")
_LARGE_TRACE = 100_000  # bytes of its record: packing takes a millisecond or two
_log = logging.getLogger(__name__)


class Run:
    """Iterate once over `events()`; `response` and `error` then hold the outcome."""

    def __init__(
        self,
        prepared: Prepared,
        served: Served,
        work: Work,
        response: dict[str, Any],
        *,
        keeps: bool,
        generates: bool = True,
        outlives: bool = False,
        tape: Tape | None = None,
        stored: StoredResponse | None = None,
        spending: Spending | None = None,
    ) -> None:
        """Unless it `keeps`, nothing is stored. Without `generates`, the engine only reads the prompt.

        If it `outlives` its connection, only its cancellation ends it early. With a `tape`, another process
        can continue it. `stored` is the response of a run whose process stopped after it had stored the
        response, but before its last event. `spending` holds the tokens that were reserved for it.
        """
        self.outlives = outlives
        self.tape = tape
        self.continuation: Continuation | None = None  # with which another process can continue it
        self._stored = stored
        self._spending = spending or no_spending()
        self.caller = work.caller
        self.request = prepared.request
        self.error: ApiError | None = None
        self.kept = keeps  # whether the store has the response once it has ended
        self.ignored = ignored_fields(self.request, work.model.info, logprobs=self.request.scores)
        self._prepared = prepared
        self._served = served
        self._work = work
        self._model = work.model
        self._keeps = keeps
        self._generates = generates
        self._compaction = prepared.compaction
        self._used: list[Transcript] = []  # their tokens are the usage
        self._observed = served.observed(
            "responses", response["id"], self.request.model, work.caller, outlives=outlives
        )
        self._observed.usage = lambda: Usage.of(usage_of(*self._used))
        self._observed.conversation = prepared.hosted.conversation
        self._summarised: Transcript | None = None  # of the compaction
        self._ending = False
        self._begin(prepared)
        self._stream = self._new_stream(response)
        self._begin_trace(prepared)

    def _new_stream(self, response: dict[str, Any]) -> ResponseStream:
        prepared, work = self._prepared, self._work
        calls = _hosted_calls(prepared, self.tape)
        route = item_route(work.ids, calls, self._detail(), prepared.tools.offered_clients)
        ends_cut_calls = self._served.settings.end_cut_calls
        return ResponseStream(response, route, work.clock, ends_cut_calls=ends_cut_calls)

    def _begin(self, prepared: Prepared) -> None:
        model = self._model
        plan = TurnPlan(
            engine=model.engine,
            encoding=model.encoding,
            renderer=model.renderer,
            sampling=prepared.sampling,
            recipients=prepared.recipients,
            tools=prepared.hosted if self.tape is None else TapedTools(prepared.hosted, self.tape),
            approved=tuple((call.recipient, call.arguments) for call in prepared.approved),
            binding=prepared.binding,
            reasoning_budget=prepared.thinking.budget,
            parallel=prepared.wanted.parallel,
            hidden_stops=own_stops(prepared.sampling),
            limits=model.limits,
        )
        self._prepared = prepared
        self._transcript = Transcript(prepared.prompt)
        self._turn = Turn(plan, self._transcript)

    def _begin_trace(self, prepared: Prepared) -> None:
        """Only of what is stored: a client that wants nothing kept has no trace either."""
        if self._keeps and self._served.traces.enabled:
            request = self.request.model_dump(exclude_unset=True, mode="json")
            record = TraceRecord(
                request, self.response, prepared.recipients, self._transcript, owner=self.owner
            )
            self._served.traces.begin(self.id, record)

    @property
    def owner(self) -> str:
        return self.caller.owner

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def ending(self) -> bool:
        """Whether the run is producing its last event, or has produced it."""
        return self._ending

    @property
    def snapshot(self) -> StoredResponse:
        """The current response, while the run is in progress."""
        response = {**self.response, "output": list(self.response["output"])}
        return StoredResponse(response=response, input_items=self._prepared.items)

    @property
    def response(self) -> dict[str, Any]:
        return self._stream.response

    def still_in_progress(self) -> list[Event]:
        return self._stream.still_in_progress()

    async def abandon(self) -> None:
        """End a run whose events nobody will read."""
        self._spending.settle(0)
        await self._prepared.hosted.close(keeps_conversation=True)

    async def events(self) -> AsyncGenerator[list[Event], None]:
        stream, finish = self._stream, None
        with self._observed.running():
            try:
                yield stream.start()
                for listing in self._prepared.hosted.listings:
                    yield stream.add(McpListBuilder(listing))
                try:
                    if self._compaction is not None:
                        yield stream.add(CompactionBuilder(await self._compact(self._compaction)))
                    if self._compaction is None or not self._compaction.alone:
                        if begun := self._begun():
                            yield begun
                        async with aclosing(self._turn_events()) as turn:
                            async for batch in turn:
                                if type(last := batch[-1]) is TurnFinished:
                                    finish = last.finish
                                yield stream.feed(batch)
                        if finish is Finish.STOP and self._generates:
                            await self._turn.check_form()
                except Exception as error:
                    self.error = from_exception(error, f"The response {self.id}")
                yield await self._finish(outcome(finish, self.error))
            finally:
                self._note()
                self._spending.settle(usage_of(*self._used)["total_tokens"])
                await self._close_tools()

    def over(self) -> None:
        """Nothing more happens to the run in this process."""
        self._observed.over()

    def _use(self, transcript: Transcript) -> None:
        self._used.append(transcript)
        self._observed.add(transcript)

    def _note(self) -> None:
        """Of a run that is stopped, `stopped` notes the end."""
        if self._ending or not self.outlives:
            note_answer(
                response_id=self.id,
                model=self.response["model"],
                finish=self.response["status"],
                usage=usage_of(*self._used),
                error=self.error,
            )

    def _turn_events(self) -> AsyncGenerator[list[TurnEvent], None]:
        self._use(self._transcript)
        return self._turn.events() if self._generates else self._turn.read_prompt()

    def _begun(self) -> list[Event]:
        """The events of a forced call that the server begins for an engine without grammars."""
        prepared = self._prepared
        if prepared.approved or not self._generates:
            return []
        tokens = begun_call(prepared.wanted, self._model.info, self._model.renderer)
        return self._stream.feed(self._turn.prefill(tokens)) if tokens else []

    async def _close_tools(self) -> None:
        request = self.request
        continued = request.previous_response_id is not None or request.conversation is not None
        await self._prepared.hosted.close(keeps_conversation=continued or self._keeps)

    async def _compact(self, compaction: Compaction) -> dict[str, str]:
        """Compact the conversation, let the turn begin after it, and return the compaction's item."""
        model, work = self._model, self._work
        transcript = self._summarised = Transcript(compaction.prompt)
        self._use(transcript)
        compacted = await compaction.make(transcript, model.engine, model.encoding, model.renderer)
        after_compaction, binding = self._prepared.after_compaction, self._prepared.binding
        assert after_compaction is not None
        prepared = after_compaction(compacted.segments(model.renderer))
        self._begin(replace(prepared, past=self._prepared.past, binding=binding))
        self._begin_trace(self._prepared)
        return compaction_item(work.ids, compacted, work.keep.sealer)

    async def stopped(self) -> list[Event]:
        """The events that end the response, after `events` was cancelled."""
        end = await self._finish("cancelled")
        self._note()
        return end

    def __aiter__(self) -> AsyncGenerator[list[Event], None]:
        return self.events()

    async def wait(self) -> dict[str, Any]:
        """The response once it has ended, for callers that do not need the events."""
        async with aclosing(self.events()) as events:
            async for _ in events:
                pass
        return self.response

    async def _finish(self, status: Status) -> list[Event]:
        self._ending = True
        closing = self._stream.feed(self._turn.close())  # empty if the turn ended normally
        if self.request.enable_response_messages:
            self.response.update(self._harmony_messages())
        end = self._stream.finish(
            status,
            usage=usage_of(*self._used),
            reason="max_output_tokens" if status == "incomplete" else None,
            why=self._transcript.repetition,
            error=self.error,
            metadata=self._metadata(),
        )
        if self._stored is not None:
            self._served.traces.forget(self.id)  # the store has the trace too
            self._log()
            return [*closing, *self._stream.ended_as(end, self._stored.response)]
        try:
            if self.tape is not None:  # first: who continues a stored response repeats its last events
                await self.tape.flush()
            await self._keep()
        except LeaseLost:  # another process ends this response
            self._served.traces.forget(self.id)
            raise
        except (
            Exception
        ) as error:  # the client must get a terminal event, and one that does not claim storage
            self.kept = False
            self.error = _not_stored(self.id, error)
            end[-1] = self._stream.failed_instead(end[-1], self.error)
            self._served.traces.forget(self.id)
        self._served.traces.end(self.id)
        self._log()
        return closing + end

    def _detail(self) -> Detail:
        model, sealer = self._model, self._work.keep.sealer

        def seal(message: MessageFinished) -> str:
            segment = self._transcript.spoken(message, model.renderer)
            return seal_reasoning(sealer, segment.tokens)

        sealed = "reasoning.encrypted_content" in (self.request.include or ())
        speller = Speller(model.encoding, as_ids=False)
        scored = self.request.scored if self._prepared.sampling.logprobs is not None else ()
        return Detail(
            speller=speller if "message" in scored else None,
            reasoning_speller=speller if "reasoning" in scored else None,
            call_speller=speller if "function_call" in scored else None,
            summary=self.request.summary,
            seal=seal if sealed else None,
            reasoning_events=REASONING_EVENTS[self._served.settings.event_names],
        )

    def _harmony_messages(self) -> dict[str, Any]:
        """The messages of the prompt and of the turn, including tool results."""
        self._turn.end()
        output = [token for segment in self._transcript.segments for token in segment.tokens]
        return {
            "input_messages": messages_of(self._transcript.prompt, self._model.encoding),
            "output_messages": messages_of(output, self._model.encoding),
        }

    def _metadata(self) -> dict[str, Any]:
        metadata = dict(self.response["metadata"])
        if self._prepared.request.debug:
            metadata |= debug_metadata(self._model.encoding, self._transcript)
            if self._summarised is not None:
                metadata |= debug_compaction(self._model.encoding, self._summarised)
        return metadata

    def _log(self) -> None:
        encoding, transcript = self._model.encoding, self._transcript
        self._observed.turn_ended(self.response["status"], transcript.departures, self.error)
        with_text = self._served.settings.log_prompts
        if self._summarised is not None:
            log_turn(f"{self.id} compaction", encoding, self._summarised, with_text=with_text)
        if self._compaction is None or not self._compaction.alone:
            log_turn(self.id, encoding, transcript, with_text=with_text)

    async def _keep(self) -> None:
        """Store the turn before the terminal event is sent: clients may continue from it immediately."""
        self._turn.end()
        # An approved call that may have run belongs to the conversation: a retry must not repeat it.
        may_have_called = bool(self._prepared.approved) and self._turn.has_begun
        adds = self.response["status"] in _ADDED_TO_CONVERSATION or may_have_called
        closing = closing_results(self._transcript, self._stream, self._model.renderer)
        hosted = self._prepared.hosted
        segments = (*hosted.carries, *hosted.left_behind, *self._transcript.segments, *closing)
        turn = FinishedTurn(self._prepared, self._stream, segments, await self._packed_trace())
        await turn.keep(self._work, keeps=self._keeps, adds=adds)

    async def _packed_trace(self) -> bytes:
        """For a store that keeps traces. A thread packs what is long."""
        served = self._served
        record = served.traces.finish(self.id, self._prepared.history, len(self._model.renderer.cue))
        if record is None or not self.response["store"] or self._work.keep.traces is None:
            return b""
        origin = origin_of(self._model.info)
        if record.size < _LARGE_TRACE:
            return packed(record, origin)
        return await asyncio.to_thread(packed, record, origin)


def _not_stored(response_id: str, error: Exception) -> ApiError:
    if isinstance(error, StoreUnavailable):
        _log.error("The response %s could not be stored: %s", response_id, error)
        return StoreUnavailable(f"The response could not be stored. {error}")
    _log.error("The response %s could not be stored.", response_id, exc_info=error)
    return GenerationFailed("The response could not be stored. The server's log says why.")


def _hosted_calls(prepared: Prepared, tape: Tape | None) -> HostedCalls:
    hosted = prepared.hosted
    return HostedCalls(
        kinds=hosted.kinds,
        runs=hosted.runs,
        names=hosted.names,
        approvals=hosted.approvals,
        approved=[(call.recipient, call.request_id) for call in prepared.approved],
        cite=hosted.cite if tape is None else tape.citing(hosted.cite),
        answers_json=prepared.wanted.answer is not None,
        conversation_of=hosted.conversation_of,
        include=frozenset(prepared.request.include or ()),
    )
