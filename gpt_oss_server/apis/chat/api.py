"""/v1/chat/completions: reads HTTP requests and sends the answers of the service."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.apis.chat.stored import StoredCompletions, UpdateCompletion
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.http.unknown_fields import unknown_header
from gpt_oss_server.runs.chunks import answer


def chat_router(service: ChatService) -> APIRouter:
    router = APIRouter()
    settings = service.served.settings

    @router.post("/v1/chat/completions", openapi_extra=documented(CreateChatCompletion))
    async def create(request: Request) -> Response:
        caller, body = await read_json(request, settings.max_body_bytes)
        run = await service.start(caller, body)
        return await answer(
            run,
            request,
            streams=bool(run.request.stream),
            keep_alive=settings.keep_alive,
            headers=unknown_header(body, CreateChatCompletion, settings.unknown_fields),
        )

    one = "/v1/chat/completions/{completion}"
    add_routes(
        router,
        settings,
        service.stored,
        Route("GET", "/v1/chat/completions", StoredCompletions.listed, lists=True),
        Route("GET", one, StoredCompletions.retrieve),
        Route("POST", one, StoredCompletions.update, UpdateCompletion),
        Route("DELETE", one, StoredCompletions.delete),
        Route("GET", f"{one}/messages", StoredCompletions.messages, lists=True),
    )
    return router
