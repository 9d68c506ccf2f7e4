"""The Responses API without HTTP, as the routes, the terminal chat and `render` use it.

Takes request bodies as decoded JSON. Returns runs, rendered prompts and stored responses, or raises an
`ApiError` before anything is generated. It decides which responses are stored; `Served` holds the engine, the
tools and the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.constraints.binding import Wanted
from gpt_oss_server.errors import (
    ApiError,
    ContextLengthExceeded,
    EventsForgotten,
    InvalidRequest,
    ResponseNotFound,
    from_inference,
)
from gpt_oss_server.http.sse import encode
from gpt_oss_server.responses.conversations import Conversations
from gpt_oss_server.responses.input.compacted import compaction_item
from gpt_oss_server.responses.input.loaded import tools_of
from gpt_oss_server.responses.past import Past, is_user_message, past_of, past_user_messages, with_references
from gpt_oss_server.responses.prepare import Prepared, prepare
from gpt_oss_server.responses.refused import RefusedRun
from gpt_oss_server.responses.request import (
    CreateResponse,
    parse_compaction,
    parse_request,
    without_compaction,
)
from gpt_oss_server.responses.resource import new_response, usage_of
from gpt_oss_server.responses.run import Run
from gpt_oss_server.serving.served import Served, in_thread_if_large
from gpt_oss_server.stores.base import Store, StoredResponse
from gpt_oss_server.stores.events import EventLog, has_event, past_the_end
from gpt_oss_server.tooling.requested import parse_tools
from gpt_oss_server.turns.background import BackgroundRuns
from gpt_oss_server.turns.debug import log_turn
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import EngineInfo, InferenceError

_ANY_LENGTH = 2**40  # for counting: a context that every prompt fits


@dataclass(frozen=True, slots=True)
class Rendered:
    """The exact prompt of a request."""

    tokens: list[int]
    text: str


class ResponsesService:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.conversations = Conversations(
            served.store, served.renderer, served.ids, served.clock, lambda: served.sealer
        )
        self.background = BackgroundRuns[Run](
            encode, served.stores.events, max_running=served.settings.background_max_runs
        )

    async def start(self, body: object, *, store: Store | None = None, generates: bool = True) -> Run:
        """Does everything up to the first token: after this returns, only the engine can fail.

        A caller's own `store` keeps every response and resolves `previous_response_id`. Without `generates`,
        the engine only reads the prompt.
        """
        return await self._start(parse_request(body), store, generates)

    async def start_streamed(
        self, body: object, *, store: Store | None = None, generates: bool = True
    ) -> Run | RefusedRun:
        """Like `start`, but a prompt that is too long becomes a failed response in the stream."""
        request = parse_request(body)
        try:
            return await self._start(request, store, generates)
        except ContextLengthExceeded as error:
            return self._refused(request, error)

    async def _start(self, request: CreateResponse, store: Store | None, generates: bool) -> Run:
        served = self.served
        response_id = served.ids("resp")
        if request.background:
            self.background.check_room()
        if generates:
            served.check_room()
        else:
            request = without_compaction(request)
        prepared = await self._prepare(request, response_id, served.store if store is None else store)
        keep = served.settings.store_default if request.store is None else request.store
        keep = keep or bool(request.background)
        response = new_response(
            request,
            response_id=response_id,
            created_at=int(served.clock()),
            model=request.model or served.model_names[0],
            tools=prepared.tools.echo,
            effort=prepared.effort,
            temperature=prepared.sampling.temperature,
            top_p=prepared.sampling.top_p,
            store=keep,
            background=bool(request.background),
            null_user=self._null_user,
        )
        return Run(
            prepared,
            served,
            response,
            store=store if store is not None or not keep else served.store,
            conversations=self.conversations,
            generates=generates,
        )

    def _refused(self, request: CreateResponse, error: ApiError) -> RefusedRun:
        served, info = self.served, self.served.engine.info
        response = new_response(
            request,
            response_id=served.ids("resp"),
            created_at=int(served.clock()),
            model=request.model or served.model_names[0],
            tools=parse_tools(request.tools or (), offered=True).echo,
            effort=request.effort or served.settings.default_reasoning_effort,
            temperature=info.temperature if request.temperature is None else request.temperature,
            top_p=info.top_p if request.top_p is None else request.top_p,
            store=False,
            null_user=self._null_user,
        )
        served.counters.count("failed", ())
        return RefusedRun(response, error, served.clock)

    @property
    def _null_user(self) -> bool:
        return self.served.settings.event_names == "open-responses"

    async def render(self, body: object) -> Rendered:
        """The prompt of this request; nothing is generated or stored."""
        prepared = await self._prepare(parse_request(body), "", self.served.store)
        await prepared.hosted.close(keeps_conversation=True)
        return Rendered(list(prepared.prompt), self.served.encoding.decode(prepared.prompt))

    async def count(self, body: object) -> int:
        """The length of this request's prompt in tokens, even where it exceeds the context."""
        request, info = without_compaction(parse_request(body)), self.served.engine.info
        if request.truncation != "auto":
            info = replace(info, context_length=_ANY_LENGTH)
        prepared = await self._prepare(request, "", self.served.store, info=info)
        await prepared.hosted.close(keeps_conversation=True)
        return len(prepared.prompt)

    async def compact(self, body: object) -> dict[str, Any]:
        """The user's messages and the compaction, to send in place of the conversation."""
        request, served = parse_compaction(body), self.served
        served.check_room()
        messages = await past_user_messages(request, served.store)
        prepared = await self._prepare(request, "", served.store, compacts=True)
        messages += [item for item in prepared.items if is_user_message(item)]
        compaction = prepared.compaction
        assert compaction is not None
        response_id, transcript = served.ids("resp"), Transcript(compaction.prompt)
        try:
            compacted = await compaction.make(transcript, served.engine, served.encoding, served.renderer)
        except InferenceError as error:
            raise from_inference(error) from error
        finally:
            await prepared.hosted.close(keeps_conversation=True)
            log_turn(
                f"{response_id} compaction",
                served.encoding,
                transcript,
                with_text=served.settings.log_prompts,
            )
        item = compaction_item(served.ids, compacted, served.sealer)
        return {
            "id": response_id,
            "object": "response.compaction",
            "created_at": int(served.clock()),
            "output": [*messages, item],
            "usage": usage_of(transcript),
        }

    async def retrieve(self, response_id: str) -> StoredResponse:
        running = self.background.running(response_id)
        if running is not None:
            return running.snapshot
        stored = await self.served.store.get(response_id)
        if stored is None:
            raise ResponseNotFound(
                f"No response with id {response_id!r} is stored. It may have expired, been deleted, or been "
                "created with store=false.",
                param="response_id",
            )
        return stored

    async def delete(self, response_id: str) -> dict[str, Any]:
        await self.retrieve(response_id)
        await self.background.stop(response_id)
        await self.background.logs.delete(response_id)
        self.served.traces.forget(response_id)
        await self.served.store.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> dict[str, Any]:
        """The cancelled response. Cancelling it again changes nothing."""
        await self.background.stop(response_id)
        response = (await self.retrieve(response_id)).response
        if not response["background"]:
            raise InvalidRequest(
                "Only a background response can be cancelled. To stop any other, close the connection.",
                param="response_id",
            )
        if response["status"] != "cancelled":
            raise InvalidRequest(
                f"The response {response_id!r} cannot be cancelled: it has ended as {response['status']!r}.",
                param="response_id",
            )
        return response

    async def run_in_background(self, run: Run) -> EventLog:
        """Run to the end, even if nobody reads the log."""
        try:
            return await self.background.start(run)
        except ApiError:  # another run took the last slot
            await run.abandon()
            raise

    async def event_log(self, response_id: str, after: int) -> EventLog:
        """The log of a background response; it still holds all events after number `after`."""
        log = await self.background.logs.open(response_id)
        if log is None:
            await self.retrieve(response_id)  # raises if there is no such response
            raise EventsForgotten(
                f"The response {response_id!r} has no events to stream: it is not a background response, or "
                "ended too long ago. Leave `stream` out to get the whole response.",
                param="stream",
            )
        await log.check(after)
        ended = after >= 0 and await self.served.store.get(response_id) is not None
        if ended and not await has_event(log, after):
            raise past_the_end(after)
        return log

    async def close(self) -> None:
        """Close the engine, tools and stores; background runs end before the store closes."""
        await self.served.stop()
        await self.background.close()
        await self.served.close()

    async def _prepare(
        self,
        request: CreateResponse,
        response_id: str,
        store: Store,
        *,
        info: EngineInfo | None = None,
        compacts: bool = False,
    ) -> Prepared:
        served = self.served
        if request.model is not None:
            served.check_model(request.model)
        past = await self._past(request, store)
        request, results = await with_references(request, store)
        past = replace(past, results=results)
        offered = request.tool_choice != "none"
        tools = tools_of(request.tools, past.history, request.input, offered=offered)
        of_request = served.tools_for(
            tools, limit=request.max_tool_calls, conversation=past.session or response_id
        )
        async with of_request as hosted:

            def render() -> Prepared:
                return prepare(
                    request, past, tools, hosted, served, info or served.engine.info, compacts=compacts
                )

            prepared = await in_thread_if_large(render, request.input, request.instructions, request.tools)
            prepared = replace(prepared, past=past, binding=await served.bound(prepared.wanted))
            if prepared.compaction is None:
                return prepared
            compaction = replace(prepared.compaction, binding=await served.bound(Wanted(answers_only=True)))
            return replace(prepared, compaction=compaction)

    async def _past(self, request: CreateResponse, store: Store) -> Past:
        previous = request.previous_response_id
        # A run stores its response before the terminal event and ends a moment later, so both may be true.
        if previous and self.background.running(previous) and await store.get(previous) is None:
            raise InvalidRequest(
                f"The response {previous!r} is still being generated. Continue it when it has ended.",
                param="previous_response_id",
            )
        return await past_of(request, store)
