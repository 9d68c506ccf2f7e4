"""The Responses API without HTTP, as the routes, the terminal chat and `render` use it.

Takes a caller and request bodies as decoded JSON. Returns runs, rendered prompts and compactions, or raises
an `ApiError` before anything is generated. It decides which responses are stored.
"""

from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.apis.responses.continuing import Continuing
from gpt_oss_server.apis.responses.past import is_user_message, past_of, past_user_messages, with_references
from gpt_oss_server.apis.responses.prepare import PreparedResponse, bind
from gpt_oss_server.apis.responses.request import (
    CompactResponse,
    CreateResponse,
    check_included,
    parse_request,
    without_compaction,
)
from gpt_oss_server.apis.responses.resource import new_response
from gpt_oss_server.apis.responses.run import RefusedRun, Run
from gpt_oss_server.apis.responses.stored import StoredResponses
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.caller.record import note
from gpt_oss_server.content.parts import treat_images
from gpt_oss_server.errors import ApiError, ContextLengthExceeded, InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.sse import encode
from gpt_oss_server.http.unknown_fields import treat_unknown_fields
from gpt_oss_server.runs.attached import with_files
from gpt_oss_server.runs.background.runs import BackgroundRuns
from gpt_oss_server.runs.served import Served, check_stored
from gpt_oss_server.runs.work import Work
from gpt_oss_server.stores.base import Responses
from gpt_oss_server.stores.chain import UnknownParent
from gpt_oss_server.stores.sql.events import EventLog

_ANY_LENGTH = 2**40  # for counting: a context that every prompt fits


@dataclass(frozen=True, slots=True)
class Rendered:
    """The exact prompt of a request."""

    tokens: list[int]
    encoding: Encoding

    @property
    def text(self) -> str:
        return self.encoding.decode(self.tokens)


class ResponsesService:
    def __init__(self, served: Served) -> None:
        self.served = served
        stores = served.stores
        self.background = BackgroundRuns[Run](
            encode,
            stores.events,
            max_running=served.settings.background_max_runs,
            claims=stores.claims,
            over=Run.over,
        )
        self.continuing = Continuing(served, self.background)

    def stored(self, caller: Caller) -> StoredResponses:
        keep = self.served.stores.of(caller.owner)
        return StoredResponses(keep, self.background, self.continuing, self.served.traces)

    async def start(
        self,
        caller: Caller,
        body: object,
        *,
        store: Responses | None = None,
        generates: bool = True,
        **how: Any,
    ) -> Run:
        """Does everything up to the first token: after this returns, only the engine can fail.

        A connection's own `store` keeps every response and resolves `previous_response_id`. Without
        `generates`, the engine only reads the prompt. `how`: the `api` that the run answers, and the text
        with which the answer has `begun`.
        """
        return await self._start(caller, await self.parsed(caller, body), store, generates, **how)

    async def start_streamed(
        self,
        caller: Caller,
        body: object,
        *,
        store: Responses | None = None,
        generates: bool = True,
        outlives: bool = False,
    ) -> Run | RefusedRun:
        """Like `start`, but a prompt that is too long becomes a failed response in the stream.

        With `outlives`, the run may outlive its connection, if the request and the settings wish so.
        """
        request = await self.parsed(caller, body)
        try:
            return await self._start(caller, request, store, generates, outlives=outlives)
        except ContextLengthExceeded as error:
            return self._refused(caller, request, error)

    async def parsed(
        self, caller: Caller, body: object, kind: type[CreateResponse] = CreateResponse
    ) -> CreateResponse:
        prompts = self.served.prompts
        request = await in_thread_if_large(caller.body_size, lambda: parse_request(body, kind, prompts), body)
        check_included(request.include or (), self.served.kinds)
        treat_unknown_fields(body, CreateResponse, self.served.settings.unknown_fields)
        treat_images(request.input, "input", self.served.settings.images)
        return request

    async def _start(
        self,
        caller: Caller,
        request: CreateResponse,
        store: Responses | None,
        generates: bool,
        *,
        outlives: bool = False,
        begun: str | None = None,
        **api: Any,
    ) -> Run:
        work = self.served.work(caller, request.model)
        keep, outlives = self._lasts(request, outlives=outlives)
        if keep or request.conversation is not None:
            await check_stored(caller, work.keep)
        if store is not None:
            work = replace(work, keep=replace(work.keep, responses=store))
        lasts = keep or store is not None
        response_id, session = _new_ids(work, request, lasts=lasts)
        if generates:
            work.model.check_room()
        else:
            request = without_compaction(request)
        recording = self.continuing.new_recording(work) if outlives and store is None else None
        work = work if recording is None else recording.work
        prepared = await self.prepare(work, request, session, begun=begun)
        response = new_response(
            request,
            work,
            response_id=response_id,
            tools=prepared.tools.echo,
            effort=prepared.effort,
            sampling=prepared.sampling,
            store=keep,
        )
        run = Run(
            prepared,
            self.served,
            work,
            response,
            keeps=lasts,
            spending=await prepared.reserve(caller, request.max_output_tokens, outlives=outlives),
            generates=generates,
            outlives=outlives,
            tape=None if recording is None else recording.tape,
            **api,
        )
        if recording is not None:
            run.continuation = recording.continuation(run, prepared)
        return run

    def _lasts(self, request: CreateResponse, *, outlives: bool) -> tuple[bool, bool]:
        """Whether the response is stored, and whether its run outlives its connection, if it may."""
        settings = self.served.settings
        keep = settings.store_default if request.store is None else request.store
        keep = keep or bool(request.background)
        on_disconnect = request.on_disconnect or settings.on_disconnect
        outlives = bool(request.background) or (outlives and keep and on_disconnect == "continue")
        if outlives:
            self.background.check_room()
        return keep, outlives

    def _refused(self, caller: Caller, request: CreateResponse, error: ApiError) -> RefusedRun:
        served, work = self.served, self.served.work(caller, request.model)
        sampling = work.model.info.defaults
        own: dict[str, Any] = {"temperature": request.temperature, "top_p": request.top_p}
        response = new_response(
            request,
            work,
            response_id=work.new_id("resp", request.request_id),
            tools=work.kinds.read_tools(request.tools or (), offered=True).echo,
            effort=request.effort or served.settings.default_reasoning_effort,
            sampling=replace(sampling, **{name: value for name, value in own.items() if value is not None}),
            store=False,
        )
        served.observed("responses", response["id"], request.model, work).refused(error)
        return RefusedRun(response, error, served.clock)

    async def render(self, caller: Caller, body: object, begun: str | None = None) -> Rendered:
        """The prompt of this request, with the text that its answer has `begun`; nothing is generated."""
        request = await self.parsed(caller, body)
        work = self.served.work(caller, request.model)
        prepared = await self.prepare(work, request, begun=begun)
        await prepared.close()
        tokens = [*prepared.prompt, *(prepared.prefill if begun else ())]
        return Rendered(tokens, work.model.encoding)

    async def count(self, caller: Caller, body: object) -> int:
        """The length of this request's prompt in tokens, even where it exceeds the context."""
        request = without_compaction(await self.parsed(caller, body))
        context = None if request.truncation == "auto" else _ANY_LENGTH
        work = self.served.work(caller, request.model)
        prepared = await self.prepare(work, request, context=context, counts=True)
        await prepared.close()
        return prepared.length

    async def compact(self, caller: Caller, body: object) -> dict[str, Any]:
        """The API's object: the user's messages and a compaction of all else."""
        request = await self.parsed(caller, body, CompactResponse)
        work = self.served.work(caller, request.model)
        work.model.check_room()
        messages = await past_user_messages(request, work.keep)
        prepared = await self.prepare(work, request, compacts=True)
        messages += [item for item in prepared.items if is_user_message(item)]
        assert prepared.compaction is not None
        spending = await prepared.reserve(caller, request.max_output_tokens)
        try:
            response_id = work.new_id("resp", request.request_id)
            return await prepared.compaction.answer(response_id, work, messages, spending)
        finally:
            await prepared.close()

    async def run_in_background(self, run: Run) -> EventLog:
        """Runs it to the end, even if the log has no reader."""
        note(response_id=run.id, finish=run.response["status"])
        limit = run.caller.access.limits.background
        try:
            try:
                return await self.background.start(run, run.continuation, most=limit)
            except UnknownParent:  # what it continues is deleted, so that only this process can run it
                return await self.background.start(run, most=limit)
        except ApiError:  # another run took the last slot
            await run.abandon()
            raise

    async def close(self) -> None:
        """Closes engine, tools and stores; background runs end or go elsewhere before the store closes."""
        await self.continuing.close()
        await self.served.stop()
        await self.background.close()
        await self.served.close()

    async def prepare(
        self,
        work: Work,
        request: CreateResponse,
        session: str = "",
        *,
        context: int | None = None,
        **how: Any,
    ) -> PreparedResponse:
        """`session`: the key of new sessions of its tools. `context` takes the place of the model's."""
        previous, store = request.previous_response_id, work.keep.responses
        read = await with_files(request.input, "input", work)
        request = request if read is request.input else request.model_copy(update={"input": read})
        # A run stores its response before the terminal event and ends a moment later, so both may be true.
        is_running = previous and await self.stored(work.caller).is_running(previous)
        if is_running and await store.get(str(previous)) is None:
            raise InvalidRequest(
                f"The response {previous!r} is still being generated. Continue it when it has ended.",
                param="previous_response_id",
            )
        past = await past_of(request, work.keep)
        request, results = await with_references(request, store)
        past = replace(past, results=results)
        return await bind(self.served, work, request, session, past, context=context, **how)


def _new_ids(work: Work, request: CreateResponse, *, lasts: bool) -> tuple[str, str]:
    """The response's id, and the key of its tools' sessions: the same, unless the client may choose it."""
    response_id = work.new_id("resp", request.request_id, lasts=lasts)
    return response_id, response_id if lasts else work.ids("session")
