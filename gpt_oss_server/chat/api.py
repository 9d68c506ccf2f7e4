"""POST /v1/chat/completions: reads HTTP requests and sends the answers of the service."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.chat.request import CreateChatCompletion
from gpt_oss_server.chat.service import ChatService
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.serving.chunks import answer


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

    return router
