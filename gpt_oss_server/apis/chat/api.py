"""/v1/chat/completions: reads HTTP requests and sends the answers of the service."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.apis.chat.stored import StoredCompletions, UpdateCompletion
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.unknown_fields import read_known, unknown_header
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

    _add_stored(router, service)
    return router


def _add_stored(router: APIRouter, service: ChatService) -> None:
    """The routes of stored completions."""

    def stored(request: Request) -> StoredCompletions:
        return service.stored(caller_of(request.scope))

    @router.get("/v1/chat/completions")
    async def listed(request: Request) -> Response:
        return JSONResponse(await stored(request).listed(request.query_params))

    @router.get("/v1/chat/completions/{completion}")
    async def retrieve(completion: str, request: Request) -> Response:
        return JSONResponse(await stored(request).retrieve(completion))

    @router.post("/v1/chat/completions/{completion}", openapi_extra=documented(UpdateCompletion))
    async def update(completion: str, request: Request) -> Response:
        caller, body, headers = await read_known(request, UpdateCompletion, service.served.settings)
        return JSONResponse(await service.stored(caller).update(completion, body), headers=headers)

    @router.delete("/v1/chat/completions/{completion}")
    async def delete(completion: str, request: Request) -> Response:
        return JSONResponse(await stored(request).delete(completion))

    @router.get("/v1/chat/completions/{completion}/messages")
    async def messages(completion: str, request: Request) -> Response:
        return JSONResponse(await stored(request).messages(completion, request.query_params))
