"""The routes of conversations: they translate between HTTP and `Conversations`."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.conversations.conversations import (
    Conversations,
    CreateConversation,
    CreateItems,
    UpdateConversation,
)
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import Body, documented
from gpt_oss_server.http.large_work import json_answer
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.runs.served import Served, check_stored
from gpt_oss_server.runs.work import Work


def conversations_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/conversations")

    async def sent(request: Request, model: type[Body]) -> tuple[Work, object, dict[str, str]]:
        caller, body, headers = await read_known(request, model, served.settings)
        return served.stored_work(caller), body, headers

    def of(request: Request) -> Conversations:
        return Conversations(served.stored_work(caller_of(request.scope)))

    @router.post("", openapi_extra=documented(CreateConversation))
    async def create(request: Request) -> Response:
        work, body, headers = await sent(request, CreateConversation)
        await check_stored(work.caller, work.keep)
        return JSONResponse(await Conversations(work).create(body), headers=headers)

    @router.get("/{conversation}")
    async def retrieve(conversation: str, request: Request) -> Response:
        return JSONResponse(await of(request).retrieve(conversation))

    @router.post("/{conversation}", openapi_extra=documented(UpdateConversation))
    async def update(conversation: str, request: Request) -> Response:
        work, body, headers = await sent(request, UpdateConversation)
        return JSONResponse(await Conversations(work).update(conversation, body), headers=headers)

    @router.delete("/{conversation}")
    async def delete(conversation: str, request: Request) -> Response:
        return JSONResponse(await of(request).delete(conversation))

    @router.get("/{conversation}/items")
    async def items(conversation: str, request: Request) -> Response:
        return await json_answer(await of(request).items(conversation, request.query_params))

    @router.post("/{conversation}/items", openapi_extra=documented(CreateItems))
    async def add_items(conversation: str, request: Request) -> Response:
        work, body, headers = await sent(request, CreateItems)
        await check_stored(work.caller, work.keep)
        added = await Conversations(work).add_items(conversation, body)
        return await json_answer(added, work.caller.body_size, headers=headers)

    @router.get("/{conversation}/items/{item}")
    async def item(conversation: str, item: str, request: Request) -> Response:
        return await json_answer(await of(request).item(conversation, item))

    @router.delete("/{conversation}/items/{item}")
    async def delete_item(conversation: str, item: str, request: Request) -> Response:
        return JSONResponse(await of(request).delete_item(conversation, item))

    return router
