"""POST /render: the body of a response, a chat completion or a message becomes the prompt.

A body with `messages` is the Messages API's where the request has the header `anthropic-version`.
"""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.apis.messages.errors import speaks_anthropic
from gpt_oss_server.apis.messages.service import MessagesService
from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.unknown_fields import treat_unknown_fields, unknown_header


def render_router(responses: ResponsesService, chat: ChatService, messages: MessagesService) -> APIRouter:
    router = APIRouter()
    settings, decode = responses.served.settings, responses.served.models.first.encoding.decode

    @router.post("/render", openapi_extra=documented(CreateResponse))
    async def render(request: Request) -> Response:
        caller, body = await read_json(request, settings.max_body_bytes)
        headers: dict[str, str] = {}
        if isinstance(body, dict) and "messages" in body and "input" not in body:
            service = messages if speaks_anthropic(request.scope) else chat
            tokens = await service.prompt(caller, body)
        else:
            treat_unknown_fields(body, CreateResponse, settings.unknown_fields)
            headers = unknown_header(body, CreateResponse, settings.unknown_fields)
            tokens = (await responses.render(caller, body)).tokens
        prompt: dict[str, Any] = {"object": "prompt", "tokens": tokens, "text": decode(tokens)}
        if request.query_params.get("token_strs") == "true":
            prompt["token_strs"] = await in_thread_if_large(
                caller.body_size, lambda: [decode([token]) for token in tokens], tokens
            )
        return JSONResponse(prompt, headers=headers)

    return router
