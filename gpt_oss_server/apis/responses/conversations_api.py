"""The routes of conversations: they translate between HTTP and `Conversations`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.responses.conversations import CreateConversation, CreateItems, UpdateConversation
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.large_work import json_answer


def conversations_router(service: ResponsesService) -> APIRouter:
    router = APIRouter(prefix="/v1/conversations")
    conversations = service.conversations

    async def body_of(request: Request) -> object:
        return await read_json(request, service.served.settings.max_body_bytes)

    @router.post("", openapi_extra=documented(CreateConversation))
    async def create(request: Request) -> Response:
        await service.served.check_stored()
        return JSONResponse(await conversations.create(await body_of(request)))

    @router.get("/{conversation}")
    async def retrieve(conversation: str) -> Response:
        return JSONResponse(await conversations.retrieve(conversation))

    @router.post("/{conversation}", openapi_extra=documented(UpdateConversation))
    async def update(conversation: str, request: Request) -> Response:
        return JSONResponse(await conversations.update(conversation, await body_of(request)))

    @router.delete("/{conversation}")
    async def delete(conversation: str) -> Response:
        return JSONResponse(await conversations.delete(conversation))

    @router.get("/{conversation}/items")
    async def items(conversation: str, request: Request) -> Response:
        return await json_answer(await conversations.items(conversation, request.query_params))

    @router.post("/{conversation}/items", openapi_extra=documented(CreateItems))
    async def add_items(conversation: str, request: Request) -> Response:
        await service.served.check_stored()
        return await json_answer(await conversations.add_items(conversation, await body_of(request)))

    @router.get("/{conversation}/items/{item}")
    async def item(conversation: str, item: str) -> Response:
        return await json_answer(await conversations.item(conversation, item))

    @router.delete("/{conversation}/items/{item}")
    async def delete_item(conversation: str, item: str) -> Response:
        return JSONResponse(await conversations.delete_item(conversation, item))

    return router
