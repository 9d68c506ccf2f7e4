"""One run: generates a prepared request and streams it as batches of events.

Takes a `PreparedResponse`. Returns batches of Responses events, the last of which has the only terminal
event, and keeps `response`, the object in its current state. If anything fails, it closes the open items and
ends the response as failed. Closing the iterator cancels the generation; `stopped` then returns the events
that end the response.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NoReturn

from gpt_oss_server.apis.responses.compaction import Compaction
from gpt_oss_server.apis.responses.output import new_stream
from gpt_oss_server.apis.responses.prepare import PreparedResponse
from gpt_oss_server.apis.responses.resource import shown_usage
from gpt_oss_server.apis.responses.storage import FinishedTurn, begin_trace, not_stored, packed_trace
from gpt_oss_server.apis.responses.stream import Event, ResponseStream, Status
from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.events import ClosedBy, Header, MessageFinished
from gpt_oss_server.items.compaction import CompactionBuilder, compaction_item
from gpt_oss_server.items.mcp import McpListBuilder
from gpt_oss_server.runs.background.tape import Tape, TapedTools
from gpt_oss_server.runs.life import Life
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.usage import Usage, usage_of_turns
from gpt_oss_server.runs.work import Work
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.events import Continuation, LeaseLost
from gpt_oss_server.turns.debug import debug_metadata
from gpt_oss_server.turns.events import TurnEvent, TurnFinished
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.turn import Turn
from inference.engine import Finish

# Clients retry responses of any other status with the same input. `_keep` has one exception.
_ADDED_TO_CONVERSATION = ("completed", "incomplete")


class Run:
    """Iterate once over `events()`; `response` and `error` then hold the outcome."""

    enough = False  # set by the reader of the events: the turn ends after this batch
    # Asked of each batch: whether the response ends after it, because its client has told it something.
    is_steered: Callable[[Sequence[Event]], bool] | None = None
    ending = False  # it is producing its last event, or has produced it
    _limit = "max_output_tokens"  # why it is incomplete, if it is

    def __init__(
        self,
        prepared: PreparedResponse,
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
        api: tuple[str, str] = ("responses", "The response"),
    ) -> None:
        """Unless it `keeps`, nothing is stored. Without `generates`, the engine only reads the prompt.

        If it `outlives` its connection, only its cancellation ends it early. With a `tape`, another process
        can continue it. `stored` is the response of a run whose process stopped after it had stored the
        response, but before its last event. `spending` holds the tokens that were reserved for it. `api` is a
        label for metrics and a title for the log.
        """
        self.outlives, self.tape = outlives, tape
        self.continuation: Continuation | None = None  # with which another process can continue it
        self.id, self.caller, self.owner = response["id"], work.caller, work.caller.owner
        self.request = prepared.request
        self.kept = keeps  # whether the store has the response once it has ended
        self._stored = stored
        self._served, self.work, self._model = served, work, work.model
        self._keeps, self._generates = keeps, generates
        self._compaction = prepared.compaction
        self._moderated = prepared.moderated
        self._used: list[Transcript] = []  # their tokens are the usage
        self._summarised: Transcript | None = None  # of the compaction
        self._life = Life(
            served,
            work,
            *api,
            self.id,
            self.request,
            usage=self._usage,
            finish=lambda: str(self.response["status"]),
            spending=spending,
            outlives=outlives,
        )
        self.ignored = self._life.ignored
        self._life.observed.conversation = prepared.hosted.conversation
        self._begin(prepared)
        self._stream = new_stream(response, prepared, work, tape, lambda: self.transcript)
        self._begin_trace(prepared)

    def _begin(self, prepared: PreparedResponse) -> None:
        plan = prepared.plan(self._model)
        if self.tape is not None:
            plan = replace(plan, tools=TapedTools(prepared.hosted, self.tape))
        self._prepared = prepared
        self.transcript = Transcript(prepared.prompt)
        self._turn = Turn(plan, self.transcript)

    def _begin_trace(self, prepared: PreparedResponse) -> None:
        """Only of what is stored: a client that wants nothing kept has no trace either."""
        if self._keeps:
            begin_trace(self._served.traces, self.owner, self.response, prepared, self.transcript)

    @property
    def prompt_length(self) -> int:
        return self._prepared.length

    async def check_servers(self) -> None:
        """For an API without an item that says why the tools of an MCP server are not known."""
        try:
            self._prepared.hosted.servers.check_listed()
        except ApiError:
            await self.abandon()
            raise

    @property
    def results(self) -> Mapping[str, str]:
        """By item id: the result that the model read of a call that ran here."""
        return self._stream.results

    @property
    def error(self) -> ApiError | None:
        return self._life.error

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
        """Ends a run whose events have no reader."""
        self._life.settle()
        await self._prepared.close()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        stream, finish = self._stream, None
        try:
            # `stopped` notes the end of a run that is stopped.
            with self._life.running(notes=lambda: self.ending or not self.outlives):
                yield stream.start()
                for listing in self._prepared.hosted.servers.listings:
                    yield stream.add(McpListBuilder(listing))
                with self._life.failing():
                    if self._compaction is not None:
                        yield stream.add(CompactionBuilder(await self._compact(self._compaction)))
                    if self._compaction is None or not self._compaction.alone:
                        if begun := self._begun():
                            yield begun
                        self._use(self.transcript)
                        events = self._turn.events() if self._generates else self._turn.read_prompt()
                        moderated = self._moderated if self._generates else None
                        if moderated is not None:
                            events = moderated.events(events, self.transcript)
                        async with aclosing(events) as turn:
                            async for batch in turn:
                                if type(last := batch[-1]) is TurnFinished:
                                    finish = last.finish
                                yield (shown := stream.feed(batch))
                                steered = self.is_steered is not None and self.is_steered(shown)
                                if steered and finish is None and not _is_last(batch):
                                    self._limit = "steered"
                                if self.enough or self._limit == "steered":
                                    break
                        if finish is Finish.STOP and self._generates:
                            await self._turn.check_form()
                        if moderated is not None:
                            await moderated.ended()
                outcome = self._life.outcome(finish)
                if finish is Finish.FILTERED:
                    self._limit = "content_filter"
                elif self._limit == "steered" and outcome == "completed":
                    outcome = "incomplete"
                yield await self._finish(outcome)
        finally:
            request = self.request
            continued = request.previous_response_id is not None or request.conversation is not None
            await self._prepared.hosted.close(keeps_conversation=continued or self._keeps)

    def over(self) -> None:
        """Nothing more happens to the run in this process."""
        self._life.observed.over()

    def _use(self, transcript: Transcript) -> None:
        self._used.append(transcript)
        self._life.begins(transcript)

    def _usage(self) -> Usage:
        return usage_of_turns(self._used)

    def _begun(self) -> list[Event]:
        """The events of a forced call that the server begins for an engine without grammars."""
        prefill = self._prepared.prefill if self._generates else ()
        return self._stream.feed(self._turn.prefill(prefill)) if prefill else []

    async def _compact(self, compaction: Compaction) -> dict[str, str]:
        """Compacts the conversation, lets the turn begin after it, and returns the compaction's item."""
        transcript = self._summarised = Transcript(compaction.prompt)
        self._use(transcript)
        compacted = await compaction.make(transcript, self._model)
        after_compaction, binding = self._prepared.after_compaction, self._prepared.binding
        assert after_compaction is not None
        self._begin(replace(after_compaction(compacted.segments(self._model.renderer)), binding=binding))
        self._begin_trace(self._prepared)
        return compaction_item(self.work.ids, compacted, self.work.keep.sealer)

    async def stopped(self) -> list[Event]:
        """The events that end the response, after `events` was cancelled."""
        end = await self._finish("cancelled")
        self._life.note()
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
        self.ending = True
        traces = self._served.traces
        # Empty if the turn ended normally. A turn that was steered had begun no more than a header.
        closing = [] if self._limit == "steered" else self._stream.feed(self._turn.close())
        encoding, turns = self._model.encoding, (self.transcript, self._summarised)
        debug = debug_metadata(encoding, *turns) if self.request.debug else {}
        cut_short = self.transcript.cut_short
        if self._moderated is not None and (found := self._moderated.found) is not None:
            self.response["moderation"] = {"input": found[0], "output": found[1][0]}
        end = self._stream.finish(
            status,
            usage=shown_usage(self._usage()),
            reason=self._limit if status == "incomplete" else None,
            why=None if cut_short is None else cut_short.detail,
            error=self.error,
            metadata={**self.response["metadata"], **debug},
        )
        if self._stored is not None:
            traces.forget(self.id)  # the store has the trace too
            self._log()
            return [*closing, *self._stream.ended_as(end, self._stored.response)]
        try:
            if self.tape is not None:  # first: who continues a stored response repeats its last events
                await self.tape.flush()
            await self._keep()
        except LeaseLost:  # another process ends this response
            traces.forget(self.id)
            raise
        except Exception as error:  # the terminal event must not claim storage
            self.kept = False
            self._life.error = not_stored(self.id, error)
            failed = {"status": "failed", "error": self._life.error.of_response(), "completed_at": None}
            end = self._stream.ended_as(end, failed)
            traces.forget(self.id)
        traces.end(self.id)
        self._log()
        return closing + end

    def _log(self) -> None:
        transcript = self.transcript
        self._life.observed.turn_ended(self.response["status"], transcript.departures, self.error)
        if self._summarised is not None:
            self._life.log(self._summarised, " compaction")
        if self._compaction is None or not self._compaction.alone:
            self._life.log(transcript)

    async def _keep(self) -> None:
        """Stores the turn before the terminal event is sent: clients may continue from it immediately."""
        self._turn.end()
        # An approved call that may have run belongs to the conversation: a retry must not repeat it.
        may_have_called = bool(self._prepared.approved) and self._turn.has_begun
        adds = self.response["status"] in _ADDED_TO_CONVERSATION or may_have_called
        stored = self.response["store"] and self.work.keep.traces is not None
        trace = await packed_trace(self._served.traces, self.id, self._prepared, self._model, stored=stored)
        turn = FinishedTurn(self._prepared, self._stream, self.transcript, self.work, trace)
        await turn.keep(keeps=self._keeps, adds=adds)


def _is_last(batch: Sequence[TurnEvent]) -> bool:
    """Whether the model has ended its turn, or calls somebody."""
    return any(type(event) is MessageFinished and event.closed_by is not ClosedBy.END for event in batch)


class RefusedRun:
    """Has the interface of `Run` that readers of its events use."""

    def __init__(self, response: dict[str, Any], error: ApiError, clock: Callable[[], float]) -> None:
        self.error = error
        self.ignored: list[str] = []
        self._stream = ResponseStream(response, _no_item, clock)

    @property
    def response(self) -> dict[str, Any]:
        return self._stream.response

    def still_in_progress(self) -> list[Event]:
        return self._stream.still_in_progress()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        yield self._stream.start()
        yield self._stream.finish("failed", usage=shown_usage(Usage()), error=self.error)


def _no_item(header: Header) -> NoReturn:
    raise RuntimeError("A refused response has no output.")
