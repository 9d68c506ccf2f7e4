"""The Responses API without HTTP, as the routes, the terminal chat and `render` use it.

Takes request bodies as decoded JSON. Returns runs, rendered prompts and stored responses, or raises an
`ApiError` before anything is generated. It decides which responses are stored; `Served` holds the engine, the
tools and the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.apis.responses.continuing import Continuing
from gpt_oss_server.apis.responses.conversations import Conversations
from gpt_oss_server.apis.responses.input.compacted import compaction_item
from gpt_oss_server.apis.responses.input.loaded import tools_of
from gpt_oss_server.apis.responses.past import (
    Past,
    is_user_message,
    past_of,
    past_user_messages,
    with_references,
)
from gpt_oss_server.apis.responses.prepare import Prepared, prepare
from gpt_oss_server.apis.responses.refused import RefusedRun
from gpt_oss_server.apis.responses.request import (
    CreateResponse,
    parse_compaction,
    parse_request,
    without_compaction,
)
from gpt_oss_server.apis.responses.resource import new_response, usage_of
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.caller.access import ACCESS, owner
from gpt_oss_server.caller.limiter import reserve
from gpt_oss_server.caller.record import note
from gpt_oss_server.caller.reservation import Spending
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.errors import (
    ApiError,
    ContextLengthExceeded,
    EventsForgotten,
    InvalidRequest,
    ResponseNotFound,
    from_inference,
)
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.sse import encode
from gpt_oss_server.items.requested import parse_tools
from gpt_oss_server.runs.background.runs import BackgroundRuns
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.base import Store, StoredResponse
from gpt_oss_server.stores.chain import UnknownParent
from gpt_oss_server.stores.events import EventLog, has_event, past_the_end
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
            lambda: served.store, served.renderer, served.ids, served.clock, lambda: served.sealer
        )
        stores, settings = served.stores, served.settings
        self.background = BackgroundRuns[Run](
            encode,
            stores.events,
            max_running=settings.background_max_runs,
            claims=stores.claims,
            over=Run.over,
        )
        self.continuing = Continuing(served, self.background, self.conversations, self._prepare_again)

    async def start(self, body: object, *, store: Store | None = None, generates: bool = True) -> Run:
        """Does everything up to the first token: after this returns, only the engine can fail.

        A caller's own `store` keeps every response and resolves `previous_response_id`. Without `generates`,
        the engine only reads the prompt.
        """
        return await self._start(await self._parsed(body), store, generates)

    async def start_streamed(
        self, body: object, *, store: Store | None = None, generates: bool = True, outlives: bool = False
    ) -> Run | RefusedRun:
        """Like `start`, but a prompt that is too long becomes a failed response in the stream.

        With `outlives`, the run may outlive its connection, if the request and the settings wish so.
        """
        request = await self._parsed(body)
        try:
            return await self._start(request, store, generates, outlives=outlives)
        except ContextLengthExceeded as error:
            return self._refused(request, error)

    async def _parsed(
        self, body: object, parse: Callable[[object], CreateResponse] = parse_request
    ) -> CreateResponse:
        request = await in_thread_if_large(lambda: parse(body), body)
        self.served.treat_unknown_fields(body, CreateResponse)
        return request

    async def _start(
        self, request: CreateResponse, store: Store | None, generates: bool, *, outlives: bool = False
    ) -> Run:
        served = self.served
        response_id = served.ids("resp")
        keep = served.settings.store_default if request.store is None else request.store
        keep = keep or bool(request.background)
        on_disconnect = request.on_disconnect or served.settings.on_disconnect
        outlives = bool(request.background) or (outlives and keep and on_disconnect == "continue")
        if outlives:
            self.background.check_room()
        if keep or request.conversation is not None:
            await served.check_stored()
        if generates:
            served.check_room()
        else:
            request = without_compaction(request)
        recording = self.continuing.new_recording() if outlives and store is None else None
        served = served if recording is None else recording.served
        prepared = await self._prepare(
            request, response_id, served.store if store is None else store, served=served
        )
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
            null_user=served.settings.event_names == "open-responses",
        )
        spending = await self._reserved(request, prepared, outlives=outlives)
        run = Run(
            prepared,
            served,
            response,
            spending=spending,
            store=store if store is not None or not keep else served.store,
            conversations=self.conversations,
            generates=generates,
            outlives=outlives,
            tape=None if recording is None else recording.tape,
        )
        if recording is not None:
            run.continuation = recording.continuation(run, prepared)
        return run

    async def _reserved(self, request: CreateResponse, prepared: Prepared, *, outlives: bool) -> Spending:
        """The tokens of a run, within the limits of its key."""
        try:
            return await reserve(
                len(prepared.prompt),
                request.max_output_tokens,
                prepared.sampling.max_tokens,
                outlives=outlives,
            )
        except BaseException:
            await prepared.hosted.close(keeps_conversation=True)
            raise

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
            null_user=served.settings.event_names == "open-responses",
        )
        served.observed("responses", response["id"], request.model).refused(error)
        return RefusedRun(response, error, served.clock)

    async def render(self, body: object) -> Rendered:
        """The prompt of this request; nothing is generated or stored."""
        prepared = await self._prepare(await self._parsed(body), "", self.served.store)
        await prepared.hosted.close(keeps_conversation=True)
        return Rendered(list(prepared.prompt), self.served.encoding.decode(prepared.prompt))

    async def count(self, body: object) -> int:
        """The length of this request's prompt in tokens, even where it exceeds the context."""
        request, info = without_compaction(await self._parsed(body)), self.served.engine.info
        if request.truncation != "auto":
            info = replace(info, context_length=_ANY_LENGTH)
        prepared = await self._prepare(request, "", self.served.store, info=info, counts=True)
        await prepared.hosted.close(keeps_conversation=True)
        return prepared.length

    async def compact(self, body: object) -> dict[str, Any]:
        """The user's messages and the compaction, to send in place of the conversation."""
        request, served = await self._parsed(body, parse_compaction), self.served
        served.check_room()
        messages = await past_user_messages(request, served.store)
        prepared = await self._prepare(request, "", served.store, compacts=True)
        messages += [item for item in prepared.items if is_user_message(item)]
        compaction = prepared.compaction
        assert compaction is not None
        response_id, transcript = served.ids("resp"), Transcript(compaction.prompt)
        spending = await self._reserved(request, prepared, outlives=False)
        try:
            compacted = await compaction.make(transcript, served.engine, served.encoding, served.renderer)
        except InferenceError as error:
            raise from_inference(error) from error
        finally:
            spending.settle(usage_of(transcript)["total_tokens"])
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
        running = self.background.running(response_id, owner())
        if running is not None:
            return running.snapshot
        stored = await self.served.store.get(response_id)
        if stored is None:
            stored = await self.continuing.running_elsewhere(response_id)
        if stored is None:  # it may have ended between the two looks
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
        await self._stop(response_id)
        await self.background.logs.of(owner()).delete(response_id)
        self.served.traces.forget(response_id)
        await self.served.store.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> dict[str, Any]:
        """The cancelled response. Cancelling it again changes nothing."""
        if not (was_running := await self._is_running(response_id)):
            await self.retrieve(response_id)  # raises if there is no such response
        await self._stop(response_id)
        response = (await self.retrieve(response_id)).response
        if not response["background"] and not was_running:
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

    async def _stop(self, response_id: str) -> None:
        """Returns when the run has ended, whichever process it is in."""
        await self.background.stop(response_id, owner())
        await self.continuing.ended(response_id)

    async def run_in_background(self, run: Run) -> EventLog:
        """Run to the end, even if nobody reads the log."""
        note(response_id=run.id, finish=run.response["status"])
        limit = ACCESS.get().limits.background
        try:
            try:
                return await self.background.start(run, run.continuation, most=limit)
            except UnknownParent:  # what it continues is deleted, so that only this process can run it
                return await self.background.start(run, most=limit)
        except ApiError:  # another run took the last slot
            await run.abandon()
            raise

    async def event_log(self, response_id: str, after: int) -> EventLog:
        """The log of a background response; it still holds all events after number `after`."""
        log = await self.background.logs.of(owner()).open(response_id)
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
        """Close the engine, tools and stores; background runs end or go elsewhere before the store closes."""
        await self.continuing.close()
        await self.served.stop()
        await self.background.close()
        await self.served.close()

    async def _prepare(
        self,
        request: CreateResponse,
        response_id: str,
        store: Store,
        *,
        served: Served | None = None,
        info: EngineInfo | None = None,
        **how: bool,
    ) -> Prepared:
        served = served or self.served
        if request.model is not None:
            served.check_model(request.model)
        past = await self._past(request, store)
        request, results = await with_references(request, store)
        past = replace(past, results=results)
        return await self._prepare_after(
            request, response_id, past, served, info or served.engine.info, **how
        )

    async def _prepare_again(
        self, request: CreateResponse, response_id: str, *, served: Served, past: Past
    ) -> Prepared:
        """Prepares a request whose references and past are resolved."""
        return await self._prepare_after(request, response_id, past, served, served.engine.info)

    async def _prepare_after(
        self,
        request: CreateResponse,
        response_id: str,
        past: Past,
        served: Served,
        info: EngineInfo,
        **how: bool,
    ) -> Prepared:
        offered = request.tool_choice != "none"
        form = request.text.format if request.text else None
        parts = (request.input, request.instructions, request.tools, request.tool_choice, form)
        read = request
        tools = await in_thread_if_large(
            lambda: tools_of(read.tools, past.history, read.input, offered=offered), *parts
        )
        of_request = served.tools_for(
            tools, limit=request.max_tool_calls, conversation=past.session or response_id
        )
        async with of_request as hosted:

            def render() -> Prepared:
                return prepare(request, past, tools, hosted, served, info, **how)

            prepared = await in_thread_if_large(render, *parts)
            prepared = replace(prepared, past=past, binding=await served.bound(prepared.wanted))
            if prepared.compaction is None:
                return prepared
            compaction = replace(prepared.compaction, binding=await served.bound(Wanted(answers_only=True)))
            return replace(prepared, compaction=compaction)

    async def _is_running(self, response_id: str) -> bool:
        if self.background.running(response_id, owner()) is not None:
            return True
        return await self.continuing.is_running(response_id)

    async def _past(self, request: CreateResponse, store: Store) -> Past:
        previous = request.previous_response_id
        # A run stores its response before the terminal event and ends a moment later, so both may be true.
        is_running = previous and await self._is_running(previous)
        if is_running and await store.get(str(previous)) is None:
            raise InvalidRequest(
                f"The response {previous!r} is still being generated. Continue it when it has ended.",
                param="previous_response_id",
            )
        return await past_of(request, store)
