"""The routes of the Messages API: they translate between HTTP and the service."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.messages.request import CountTokens, CreateMessage
from gpt_oss_server.apis.messages.service import MessagesService
from gpt_oss_server.apis.messages.write import encode_event
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.sse import EventStream, json_unless_gone
from gpt_oss_server.http.unknown_fields import unknown_header
from gpt_oss_server.runs.chunks import headers_for

_SESSION = "x-claude-code-session-id"


def messages_router(service: MessagesService) -> APIRouter:
    router = APIRouter()
    settings = service.served.settings

    @router.post("/v1/messages", openapi_extra=documented(CreateMessage))
    async def create(request: Request) -> Response:
        caller, body = await read_json(request, settings.max_body_bytes)
        asked = await service.start(caller, body, request.headers.get(_SESSION))
        headers = {
            **headers_for(asked.run.ignored),
            **unknown_header(body, CreateMessage, settings.unknown_fields),
        }
        if isinstance(body, dict) and body.get("stream"):
            return EventStream(
                asked.events, encode_event, headers, keep_alive=settings.keep_alive, beat=asked.writer.beat
            )
        return await json_unless_gone(request.receive, asked.wait(), headers)

    @router.post("/v1/messages/count_tokens", openapi_extra=documented(CountTokens))
    async def count_tokens(request: Request) -> Response:
        caller, body = await read_json(request, settings.max_body_bytes)
        headers = unknown_header(body, CountTokens, settings.unknown_fields)
        return JSONResponse(await service.count(caller, body), headers=headers)

    return router
