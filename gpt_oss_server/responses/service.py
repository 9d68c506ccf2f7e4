"""The Responses API without HTTP: what the routes, the terminal chat and `render` share.

In: request bodies as decoded JSON. Out: runs, rendered prompts and stored responses, or an `ApiError` before
anything is generated. It owns which names are served and what is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http.sse import encode
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.responses.conversations import Conversations
from gpt_oss_server.responses.input.compacted import compaction_item
from gpt_oss_server.responses.input.loaded import tools_of
from gpt_oss_server.responses.past import Past, is_said, past_of, said_so_far, with_references
from gpt_oss_server.responses.prepare import Prepared, Surroundings, prepare
from gpt_oss_server.responses.refused import RefusedRun
from gpt_oss_server.responses.request import (
    CreateResponse,
    parse_compaction,
    parse_request,
    without_compaction,
)
from gpt_oss_server.responses.resource import new_response, usage_of
from gpt_oss_server.responses.run import Run
from gpt_oss_server.serving.served import Served, beside_others
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store, StoredResponse
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.tooling.requested import parse_tools
from gpt_oss_server.tooling.toolset import ToolsetMaker
from gpt_oss_server.turns.background import BackgroundRuns, EventLog
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import Engine, EngineInfo, InferenceError

_ANY_LENGTH = 2**40  # a context that everything fits into, for counting


@dataclass(frozen=True, slots=True)
class Rendered:
    """The exact prompt of a request."""

    tokens: list[int]
    text: str


class ResponsesService(Served):
    def __init__(
        self,
        engine: Engine,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        ids: Ids = random_ids,
        clock: Callable[[], float] = time.time,
        encoding: Encoding | None = None,
        tools: ToolsetMaker | None = None,
    ) -> None:
        super().__init__(engine, settings, ids=ids, clock=clock, encoding=encoding, tools=tools)
        if store is None:  # and not where it is false: an empty store has a length of 0
            store = MemoryStore(
                max_responses=self.settings.store_max_responses,
                max_conversations=self.settings.store_max_conversations,
                max_bytes=self.settings.store_max_bytes,
                max_age=self.settings.store_max_age,
            )
        self.store: Store = store
        self.conversations = Conversations(self.store, self.renderer, ids, clock, lambda: self.sealer)
        self.background = BackgroundRuns[Run](
            encode,
            max_running=self.settings.background_max_runs,
            max_bytes=self.settings.background_log_max_bytes,
            max_age=self.settings.background_log_max_age,
        )

    async def start(self, body: object, *, store: Store | None = None, generates: bool = True) -> Run:
        """Everything up to the first token: after this returns, only the engine can fail.

        A `store` of the caller's gets everything, and is where `previous_response_id` is looked up.
        Without `generates` the prompt is only read.
        """
        return await self._start(parse_request(body), store=store, generates=generates)

    async def _start(self, request: CreateResponse, *, store: Store | None, generates: bool) -> Run:
        response_id = self.ids("resp")
        if request.background:
            self.background.check_room()
        if generates:
            self.check_room()
        if not generates:
            request = without_compaction(request)
        prepared = await self._prepare(request, response_id, self.store if store is None else store)
        keep = self.settings.store_default if request.store is None else request.store
        keep = keep or bool(request.background)
        response = new_response(
            request,
            response_id=response_id,
            created_at=int(self.clock()),
            model=request.model or self.model_names[0],
            tools=prepared.tools.echo,
            effort=prepared.effort,
            temperature=prepared.sampling.temperature,
            top_p=prepared.sampling.top_p,
            store=keep,
            background=bool(request.background),
        )
        return Run(
            prepared,
            response,
            engine=self.engine,
            encoding=self.encoding,
            renderer=self.renderer,
            store=store if store is not None or not keep else self.store,
            conversations=self.conversations,
            counters=self.counters,
            ids=self.ids,
            clock=self.clock,
            log_text=self.settings.log_prompts,
            event_names=self.settings.event_names,
            generates=generates,
            sealer=lambda: self.sealer,
        )

    async def start_streamed(
        self, body: object, *, store: Store | None = None, generates: bool = True
    ) -> Run | RefusedRun:
        """Like `start`; a prompt that is too long becomes a response that has failed, with its events."""
        request = parse_request(body)
        try:
            return await self._start(request, store=store, generates=generates)
        except ContextLengthExceeded as error:
            info = self.engine.info
            response = new_response(
                request,
                response_id=self.ids("resp"),
                created_at=int(self.clock()),
                model=request.model or self.model_names[0],
                tools=parse_tools(request.tools or (), offered=True).echo,
                effort=request.effort or self.settings.default_reasoning_effort,
                temperature=info.temperature if request.temperature is None else request.temperature,
                top_p=info.top_p if request.top_p is None else request.top_p,
                store=False,
            )
            self.counters.count("failed", ())
            return RefusedRun(response, error, self.clock)

    async def render(self, body: object) -> Rendered:
        """The prompt that this request would give the model; nothing is generated or stored."""
        prepared = await self._prepare(parse_request(body), "", self.store)
        await prepared.hosted.close(keeps_conversation=True)
        return Rendered(list(prepared.prompt), self.encoding.decode(prepared.prompt))

    async def count(self, body: object) -> int:
        """How many tokens this request's prompt has, be it longer than the context or not."""
        request = without_compaction(parse_request(body))
        fits = request.truncation == "auto"
        info = self.engine.info if fits else replace(self.engine.info, context_length=_ANY_LENGTH)
        prepared = await self._prepare(request, "", self.store, info=info)
        await prepared.hosted.close(keeps_conversation=True)
        return len(prepared.prompt)

    async def compact(self, body: object) -> dict[str, Any]:
        """The user's messages and the conversation's compaction: what can be sent in its place."""
        request = parse_compaction(body)
        self.check_room()
        said = await said_so_far(request, self.store)
        prepared = await self._prepare(request, "", self.store, compacts=True)
        said += [item for item in prepared.items if is_said(item)]
        compaction = prepared.compaction
        assert compaction is not None
        transcript = Transcript(compaction.prompt)
        try:
            compacted = await compaction.make(transcript, self.engine, self.encoding, self.renderer)
        except InferenceError as error:
            raise from_inference(error) from error
        finally:
            await prepared.hosted.close(keeps_conversation=True)
        item = compaction_item(self.ids, compacted, self.sealer)
        return {
            "id": self.ids("resp"),
            "object": "response.compaction",
            "created_at": int(self.clock()),
            "output": [*said, item],
            "usage": usage_of(transcript),
        }

    async def retrieve(self, response_id: str) -> StoredResponse:
        running = self.background.running(response_id)
        if running is not None:
            return running.snapshot
        stored = await self.store.get(response_id)
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
        self.background.forget(response_id)
        await self.store.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> dict[str, Any]:
        """The response as it ended. To cancel one that was cancelled changes nothing."""
        await self.background.stop(response_id)
        response = (await self.retrieve(response_id)).response
        if not response["background"]:
            raise InvalidRequest(
                "Only a background response can be cancelled; of another, close the connection.",
                param="response_id",
            )
        if response["status"] != "cancelled":
            raise InvalidRequest(
                f"The response {response_id!r} cannot be cancelled: it has ended as {response['status']!r}.",
                param="response_id",
            )
        return response

    async def run_in_background(self, run: Run) -> EventLog:
        """It runs on from here, whoever reads its log."""
        try:
            return self.background.start(run)
        except ApiError:  # others were faster
            await run.abandon()
            raise

    async def event_log(self, response_id: str, after: int) -> EventLog:
        """The events of a background response, all of those after number `after`."""
        log = self.background.log(response_id)
        if log is None:
            await self.retrieve(response_id)  # that there is none is told first
            raise EventsForgotten(
                f"The response {response_id!r} has no events to stream: it is not a background response, or "
                "has ended too long ago. Leave `stream` out to get all of it.",
                param="stream",
            )
        log.check(after)
        return log

    async def close(self) -> None:
        await super().close()
        await self.background.close()
        if self._tools is not None:
            await self._tools.left()
        await self.store.close()

    async def _prepare(
        self,
        request: CreateResponse,
        response_id: str,
        store: Store,
        *,
        info: EngineInfo | None = None,
        compacts: bool = False,
    ) -> Prepared:
        if request.model is not None:
            self.check_model(request.model)
        past = await self._past(request, store)
        request, results = await with_references(request, store)
        past = replace(past, results=results)
        offered = request.tool_choice != "none"
        tools = tools_of(request.tools, past.history, request.input, offered=offered)
        around = Surroundings(
            info or self.engine.info,
            self.settings,
            self.encoding,
            self.renderer,
            self.ids,
            self.date(),
            lambda: self.sealer,
        )
        of_request = self.tools_for(
            tools, limit=request.max_tool_calls, conversation=past.session or response_id
        )
        async with of_request as hosted:

            def work() -> Prepared:
                return prepare(request, past, tools, hosted, around, compacts=compacts)

            prepared = await beside_others(work, request.input, request.instructions, request.tools)
            prepared = replace(prepared, binding=await self.bound(prepared.wanted))
            if prepared.compaction is None:
                return prepared
            compaction = replace(prepared.compaction, binding=await self.bound(Wanted()))
            return replace(prepared, compaction=compaction)

    async def _past(self, request: CreateResponse, store: Store) -> Past:
        previous = request.previous_response_id
        # It is stored before its end is told, and its run is over a moment later.
        if previous and self.background.running(previous) and await store.get(previous) is None:
            raise InvalidRequest(
                f"The response {previous!r} is still being generated. Continue it when it has ended.",
                param="previous_response_id",
            )
        return await past_of(request, store)
