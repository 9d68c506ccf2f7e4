"""POST /v1/chat/completions: HTTP in, the service's answers out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic_core import to_json
from starlette.responses import Response

from gpt_oss_server.chat.request import CreateChatCompletion
from gpt_oss_server.chat.service import ChatService
from gpt_oss_server.errors import ApiError
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.sse import Event, EventStream, unless_gone
from gpt_oss_server.serving.counters import Counters, counted
from gpt_oss_server.serving.served import Served

_DONE: Event = {}


class ChunkRun(Protocol):
    """What chat and plain completions have in common once they are started."""

    error: ApiError | None

    def chunks(self) -> AsyncGenerator[list[Event], None]: ...

    async def wait(self) -> dict[str, Any]: ...


def chat_router(service: ChatService) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=documented(CreateChatCompletion))
    async def create(request: Request) -> Response:
        run = await service.start(await read_json(request, service.served.settings.max_body_bytes))
        return await answer(run, request, service.served, streams=bool(run.request.stream))

    return router


async def answer(run: ChunkRun, request: Request, served: Served, *, streams: bool) -> Response:
    """A run as server-sent chunks, or as one JSON object."""
    if streams:
        return EventStream(
            _ended(run, served.counters), encoder=encode_chunk, keep_alive=served.settings.keep_alive
        )
    whole = await unless_gone(request.receive, run.wait())
    if whole is None:
        served.counters.cancelled += 1
        return Response(status_code=499)  # nobody reads it: the client is gone
    return JSONResponse(whole)


def encode_chunk(chunk: Event) -> bytes:
    """Chunks have no event names, and a last line that is no JSON."""
    return b"data: %s\n\n" % to_json(chunk) if chunk is not _DONE else b"data: [DONE]\n\n"


def _ended(run: ChunkRun, counters: Counters) -> Callable[[], AsyncGenerator[list[Event], None]]:
    async def batches() -> AsyncGenerator[list[Event], None]:
        async for batch in counted(run.chunks(), counters):
            yield batch
        if run.error is None:
            yield [_DONE]

    return batches
