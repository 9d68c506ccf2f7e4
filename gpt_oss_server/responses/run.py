"""One run: a prepared request, generated, as batches of events.

In: what `prepare` made. Out: batches of Responses events, the last of which is the one terminal event, and
`response`, the object as it stands. Whatever breaks, open items are closed and the response ends as failed.
Closing the iterator cancels the generation; `stopped` then tells how it ended, for whoever still listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from gpt_oss_server.errors import ApiError, GenerationFailed, InvalidOutput, from_inference
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.messages import messages_of
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.responses.compaction import Compaction
from gpt_oss_server.responses.conversations import Conversations
from gpt_oss_server.responses.input.compacted import compaction_item
from gpt_oss_server.responses.items.compaction import CompactionBuilder
from gpt_oss_server.responses.items.reasoning import REASONING_EVENTS, seal_reasoning
from gpt_oss_server.responses.items.routes import Detail, HostedCalls, item_route
from gpt_oss_server.responses.items.tool_builders import McpListBuilder
from gpt_oss_server.responses.prepare import Prepared
from gpt_oss_server.responses.resource import usage_of
from gpt_oss_server.responses.stream import Event, ResponseStream, Status
from gpt_oss_server.serving.counters import Counters
from gpt_oss_server.stores.base import Part, Store, StoredResponse
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.turns.debug import debug_metadata, log_turn
from gpt_oss_server.turns.logprobs import Speller
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.turn import Turn, TurnEvent, TurnFinished
from inference.engine import Engine, Finish, InferenceError

# Others are tried again, with the same input; but no call that was approved is made again.
_ADDED_TO_CONVERSATION = ("completed", "incomplete")
_log = logging.getLogger(__name__)


class Run:
    """Iterate once over `events()`; `response` and `error` then tell how it ended."""

    def __init__(
        self,
        prepared: Prepared,
        response: dict[str, Any],
        *,
        engine: Engine,
        encoding: Encoding,
        renderer: Renderer,
        store: Store | None,
        conversations: Conversations,
        counters: Counters,
        ids: Ids,
        clock: Callable[[], float],
        sealer: Callable[[], Sealer],
        log_text: bool = False,
        event_names: str = "openai",
        generates: bool = True,
    ) -> None:
        self.request = prepared.request
        self.error: ApiError | None = None
        self._prepared = prepared
        self._engine = engine
        self._ids = ids
        self._sealer = sealer
        self._encoding = encoding
        self._renderer = renderer
        self._store = store
        self._conversations = conversations
        self._counters = counters
        self._event_names = event_names
        self._used: list[Transcript] = []  # what counts as usage
        self._begin(prepared)
        route = item_route(ids, _hosted_calls(prepared), self._detail(), prepared.tools.offered_clients)
        self._stream = ResponseStream(response, route, clock)
        self._log_text = log_text
        self._generates = generates  # or only reads the prompt
        self._compaction = prepared.compaction
        self._said: list[MessageFinished] = []
        self._ending = False

    def _begin(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._transcript = Transcript(prepared.prompt)
        self._turn = Turn(
            self._engine,
            self._encoding,
            self._renderer,
            prepared.recipients,
            self._transcript,
            prepared.sampling,
            prepared.hosted,
            [(call.recipient, call.arguments) for call in prepared.approved],
            prepared.binding,
            prepared.thinking.budget,
            parallel=prepared.wanted.parallel,
        )

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def ending(self) -> bool:
        """Whether its last event is being made, or has been."""
        return self._ending

    @property
    def snapshot(self) -> StoredResponse:
        """As it stands, for who asks while it runs."""
        response = {**self.response, "output": list(self.response["output"])}
        return StoredResponse(response=response, input_items=self._prepared.items)

    @property
    def response(self) -> dict[str, Any]:
        return self._stream.response

    def still_in_progress(self) -> list[Event]:
        return self._stream.still_in_progress()

    async def abandon(self) -> None:
        """For one whose events nobody will ever read."""
        await self._prepared.hosted.close(keeps_conversation=True)

    async def events(self) -> AsyncGenerator[list[Event], None]:
        try:
            async with aclosing(self._events()) as events:
                async for batch in events:
                    yield batch
        finally:
            request = self.request
            continued = request.previous_response_id is not None or request.conversation is not None
            await self._prepared.hosted.close(keeps_conversation=continued or self._store is not None)

    async def _events(self) -> AsyncGenerator[list[Event], None]:
        stream = self._stream
        yield stream.start()
        for listing in self._prepared.hosted.listings:
            yield stream.add(McpListBuilder(listing))
        finish: Finish | None = None
        try:
            if self._prepared.compaction is not None:
                yield stream.add(CompactionBuilder(await self._compact(self._prepared.compaction)))
            async with aclosing(self._generated()) as turn:
                async for batch in turn:
                    if isinstance(batch[-1], TurnFinished):
                        finish = batch[-1].finish
                    if self._prepared.binding.check is not None:
                        self._said += [event for event in batch if isinstance(event, MessageFinished)]
                    yield stream.feed(batch)
        except InferenceError as error:
            self.error = from_inference(error)
        except ApiError as error:
            self.error = error
        except Exception:
            _log.exception("The response %s failed.", self.response["id"])
            self.error = GenerationFailed("The server failed while it generated. Its log says why.")
        if self.error is None and finish is Finish.STOP and self._generates:
            self.error = await self._invalid_output()
        if self.error is not None:
            yield await self._finish("failed")
        elif finish is Finish.LENGTH:
            yield await self._finish("incomplete", reason="max_output_tokens")
        else:
            yield await self._finish("completed")

    async def _generated(self) -> AsyncGenerator[list[TurnEvent], None]:
        if self._compaction is not None and self._compaction.alone:
            return
        self._used.append(self._transcript)
        events = self._turn.events() if self._generates else self._turn.read_prompt()
        async with aclosing(events):
            async for batch in events:
                yield batch

    async def _compact(self, compaction: Compaction) -> dict[str, str]:
        """The item; what is generated from here on goes on from it."""
        asking = Transcript(compaction.prompt)
        self._used.append(asking)
        compacted = await compaction.make(asking, self._engine, self._encoding, self._renderer)
        go_on, binding = self._prepared.go_on, self._prepared.binding
        assert go_on is not None
        self._begin(replace(go_on(compacted.segments(self._renderer)), binding=binding))
        return compaction_item(self._ids, compacted, self._sealer())

    async def stopped(self) -> list[Event]:
        """After `events` was cancelled: what ends the response."""
        return await self._finish("cancelled")

    async def _invalid_output(self) -> InvalidOutput | None:
        check = self._prepared.binding.check
        if check is None:
            return None
        said = [(message.header, message.text) for message in self._said]
        called = bool(self._prepared.approved)
        problem = await asyncio.to_thread(check.problem, said, called)  # a large answer takes a while
        return None if problem is None else InvalidOutput(problem)

    def __aiter__(self) -> AsyncGenerator[list[Event], None]:
        return self.events()

    async def wait(self) -> dict[str, Any]:
        """The response once it has ended; for callers that do not want the events."""
        async with aclosing(self.events()) as events:
            async for _ in events:
                pass
        return self.response

    async def _finish(self, status: Status, *, reason: str | None = None) -> list[Event]:
        self._ending = True
        closing = self._stream.feed(self._turn.close())  # nothing, if it ended well
        if self.request.enable_response_messages:
            self.response.update(self._harmony_messages())
        end = self._stream.finish(
            status,
            usage=usage_of(*self._used),
            reason=reason,
            error=self.error,
            metadata=self._metadata(),
        )
        try:
            await self._keep()
        except Exception:  # of a store: whoever waits for the end must be told one, and not that it is kept
            _log.exception("The response %s could not be stored.", self.response["id"])
            self.error = GenerationFailed("The response could not be stored. The server's log says why.")
            end[-1] = self._stream.failed_instead(end[-1], self.error)
        self._tell()
        return closing + end

    def _detail(self) -> Detail:
        def seal(message: MessageFinished) -> str:
            return seal_reasoning(self._sealer(), self._transcript.spoken(message, self._renderer).tokens)

        sealed = "reasoning.encrypted_content" in (self.request.include or ())
        scored = self._prepared.sampling.logprobs is not None
        return Detail(
            speller=Speller(self._encoding, as_ids=False) if scored else None,
            summary=self.request.summary,
            seal=seal if sealed else None,
            reasoning_events=REASONING_EVENTS[self._event_names],
        )

    def _harmony_messages(self) -> dict[str, Any]:
        """What the model was shown and what it said, tools' answers included."""
        self._turn.end()
        said = [token for segment in self._transcript.segments for token in segment.tokens]
        return {
            "input_messages": messages_of(self._transcript.prompt, self._encoding),
            "output_messages": messages_of(said, self._encoding),
        }

    def _metadata(self) -> dict[str, Any]:
        metadata = dict(self.response["metadata"])
        if self._prepared.request.debug:
            metadata |= debug_metadata(self._encoding, self._transcript)
        return metadata

    def _tell(self) -> None:
        self._counters.count(self.response["status"], (slip.kind for slip in self._transcript.slips))
        log_turn(self.response["id"], self._encoding, self._transcript, with_text=self._log_text)

    async def _keep(self) -> None:
        """Stored before the terminal event is sent, so that a client can go on from it at once."""
        self._turn.end()
        made = self._transcript.segments
        prepared, response, stream = self._prepared, self.response, self._stream
        recipients = {**prepared.call_recipients, **stream.recipients}
        approvals = {**prepared.approvals, **stream.approvals}
        if self._store is not None:
            await self._store.put(
                StoredResponse(
                    response=response,
                    input_items=prepared.items,
                    history=(*prepared.history, *made),
                    conversation=prepared.hosted.conversation,
                    approvals=approvals,
                    recipients=recipients,
                    results=stream.results,
                )
            )
        may_be_made = bool(prepared.approved) and self._turn.has_begun
        counts = response["status"] in _ADDED_TO_CONVERSATION or may_be_made
        if response["conversation"] is not None and counts:
            await self._conversations.added(
                response["conversation"]["id"],
                _parts(prepared, response["output"], made),
                recipients,
                approvals,
            )


def _parts(prepared: Prepared, output: Sequence[dict[str, Any]], made: Sequence[Segment]) -> list[Part]:
    """What the response adds to its conversation: its input, and what came of it."""
    if any(item["type"] == "compaction" for item in output):  # that is of both: it is before what was said
        return [Part((*prepared.items, *output), (*prepared.own, *made))]
    return [Part(prepared.items, prepared.own), Part(tuple(output), tuple(made))]


def _hosted_calls(prepared: Prepared) -> HostedCalls:
    hosted = prepared.hosted
    return HostedCalls(
        runs=hosted.runs,
        names=hosted.names,
        approvals=hosted.approvals,
        approved=[(call.recipient, call.request_id) for call in prepared.approved],
        cite=hosted.cite,
        answers_json=prepared.wanted.answer is not None,
        conversation_of=hosted.conversation_of,
        include=frozenset(prepared.request.include or ()),
    )
