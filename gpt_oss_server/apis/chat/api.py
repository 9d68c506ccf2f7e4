"""/v1/chat/completions: reads HTTP requests and sends the answers of the service."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.apis.chat.stored import UpdateCompletion
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.runs.chunks import answer


def chat_router(service: ChatService) -> APIRouter:
    router = APIRouter()
    settings = service.served.settings

    @router.post("/v1/chat/completions", openapi_extra=documented(CreateChatCompletion))
    async def create(request: Request) -> Response:
        body = await read_json(request, settings.max_body_bytes)
        run = await service.start(body)
        return await answer(
            run,
            request,
            streams=bool(run.request.stream),
            keep_alive=settings.keep_alive,
            headers=service.served.headers_for(body, CreateChatCompletion),
        )

    _add_stored(router, service)
    return router


def _add_stored(router: APIRouter, service: ChatService) -> None:
    """The routes of stored completions."""
    most, stored = service.served.settings.max_body_bytes, service.stored

    @router.get("/v1/chat/completions")
    async def listed(request: Request) -> Response:
        return JSONResponse(await stored.listed(request.query_params))

    @router.get("/v1/chat/completions/{completion}")
    async def retrieve(completion: str) -> Response:
        return JSONResponse(await stored.retrieve(completion))

    @router.post("/v1/chat/completions/{completion}", openapi_extra=documented(UpdateCompletion))
    async def update(completion: str, request: Request) -> Response:
        return JSONResponse(await stored.update(completion, await read_json(request, most)))

    @router.delete("/v1/chat/completions/{completion}")
    async def delete(completion: str) -> Response:
        return JSONResponse(await stored.delete(completion))

    @router.get("/v1/chat/completions/{completion}/messages")
    async def messages(completion: str, request: Request) -> Response:
        return JSONResponse(await stored.messages(completion, request.query_params))
