"""The routes of the Responses API: they translate between HTTP and the service."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.responses.request import CompactResponse, CreateResponse, check_included
from gpt_oss_server.apis.responses.run import RefusedRun, Run
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.apis.responses.stored import StoredResponses
from gpt_oss_server.apis.responses.stream import error_event
from gpt_oss_server.errors import InvalidOutput, InvalidRequest
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.large_work import json_answer
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.http.sse import EventStream, encode, json_unless_gone
from gpt_oss_server.http.unknown_fields import read_known, unknown_header
from gpt_oss_server.http.validation import whole_number
from gpt_oss_server.runs.chunks import headers_for
from gpt_oss_server.stores.events import past_the_end
from gpt_oss_server.stores.sql.events import EventLog


def responses_router(service: ResponsesService) -> APIRouter:
    router = APIRouter()
    _add_responses(router, service)
    _add_related(router, service)
    return router


def _add_responses(router: APIRouter, service: ResponsesService) -> None:
    """The routes that create and retrieve a response."""
    settings = service.served.settings
    keep_alive = settings.keep_alive

    def headers_of(run: Run | RefusedRun, body: object) -> dict[str, str]:
        return {**headers_for(run.ignored), **unknown_header(body, CreateResponse, settings.unknown_fields)}

    def logged(log: EventLog, after: int = -1, headers: dict[str, str] | None = None) -> Response:
        # The log holds encoded events.
        return EventStream(lambda: _read(log, after), bytes, headers, keep_alive=keep_alive)

    @router.post("/v1/responses", openapi_extra=documented(CreateResponse))
    async def create(request: Request) -> Response:
        caller, body = await read_json(request, settings.max_body_bytes)
        if isinstance(body, dict) and body.get("stream") and not body.get("background"):
            streamed = await service.start_streamed(caller, body, outlives=True)
            headers = headers_of(streamed, body)
            if isinstance(streamed, Run) and streamed.outlives:
                return logged(await service.run_in_background(streamed), headers=headers)
            return EventStream(
                streamed.events, encode, headers, keep_alive=keep_alive, beat=streamed.still_in_progress
            )
        run = await service.start(caller, body)
        headers = headers_of(run, body)
        if not run.request.background:
            return await json_unless_gone(request.receive, _whole(run), headers)
        log = await service.run_in_background(run)
        if run.request.stream:
            return logged(log, headers=headers)
        return JSONResponse(run.response, headers=headers)

    @router.get("/v1/responses/{response_id}")
    async def retrieve(response_id: str, request: Request) -> Response:
        stored = service.stored(caller_of(request.scope))
        # The request that created the response decided what it includes; this only rejects unknown names.
        check_included(_included(request), service.served.kinds)
        if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
            after = _sequence_number(request.query_params.get("starting_after"))
            return logged(await stored.event_log(response_id, after), after)
        return JSONResponse((await stored.retrieve(response_id)).response)


def _add_related(router: APIRouter, service: ResponsesService) -> None:
    """The routes around a response: deletion, cancellation, its input items, compaction and counting."""
    settings = service.served.settings

    @router.post("/v1/responses/input_tokens", openapi_extra=documented(CreateResponse))
    async def input_tokens(request: Request) -> Response:
        caller, body, headers = await read_known(request, CreateResponse, settings)
        counted = {"object": "response.input_tokens", "input_tokens": await service.count(caller, body)}
        return JSONResponse(counted, headers=headers)

    @router.post("/v1/responses/compact", openapi_extra=documented(CompactResponse))
    async def compact(request: Request) -> Response:
        caller, body = await read_json(request, settings.max_body_bytes)
        headers = unknown_header(body, CompactResponse, settings.unknown_fields)
        return await json_unless_gone(request.receive, service.compact(caller, body), headers)

    one = "/v1/responses/{response_id}"
    add_routes(
        router,
        settings,
        service.stored,
        Route("DELETE", one, StoredResponses.delete),
        Route("POST", f"{one}/cancel", StoredResponses.cancel),
    )

    @router.get("/v1/responses/{response_id}/input_items")
    async def input_items(response_id: str, request: Request) -> Response:
        check_included(_included(request), service.served.kinds)
        stored = service.stored(caller_of(request.scope))
        return await json_answer(await stored.input_items(response_id, request.query_params))


async def _read(log: EventLog, after: int) -> AsyncGenerator[list[bytes], None]:
    """The log's events. An error event ends the stream if the reader's next event is gone or never came."""
    at = after
    try:
        async with aclosing(log.read(after)) as batches:
            async for batch in batches:
                at += len(batch)
                yield batch
        if at == after >= 0 and not await log.has(after):  # the run ended before it got that far
            raise past_the_end(after)
    except InvalidRequest as error:
        yield [encode(error_event(error, at + 1))]


def _included(request: Request) -> list[str]:
    return [*request.query_params.getlist("include"), *request.query_params.getlist("include[]")]


def _sequence_number(given: str | None) -> int:
    if given in (None, "-1"):  # clients of OpenAI's begin there
        return -1
    if (number := whole_number(given)) is None:
        raise InvalidRequest.at("starting_after", "must be the number of an event.")
    return number


async def _whole(run: Run) -> dict[str, Any]:
    response = await run.wait()
    if run.error is not None and not isinstance(run.error, InvalidOutput):  # it keeps its text
        kept = f" The output up to then is in the response {response['id']}." if run.kept else ""
        raise type(run.error)(run.error.message.rstrip(".") + "." + kept, param=run.error.param)
    return response
