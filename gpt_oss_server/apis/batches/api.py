"""The routes of batches: they translate between HTTP and `BatchesApi`."""

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from gpt_oss_server.apis.batches.batches import BatchesApi, CreateBatch
from gpt_oss_server.apis.batches.message_batches import CreateMessageBatch, MessageBatchesApi
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.runs.served import Served

_MESSAGES = "/v1/messages/batches"


def batches_router(served: Served) -> APIRouter:
    router = APIRouter()
    add_routes(
        router,
        served.settings,
        partial(BatchesApi, served),
        Route("POST", "/v1/batches", BatchesApi.create, CreateBatch),
        Route("GET", "/v1/batches", BatchesApi.listed, lists=True),
        Route("GET", "/v1/batches/{batch}", BatchesApi.find),
        Route("POST", "/v1/batches/{batch}/cancel", BatchesApi.cancel),
    )
    of_messages = partial(MessageBatchesApi, served)
    add_routes(
        router,
        served.settings,
        of_messages,
        Route("POST", _MESSAGES, MessageBatchesApi.create, CreateMessageBatch),
        Route("GET", _MESSAGES, MessageBatchesApi.listed, lists=True),
        Route("GET", f"{_MESSAGES}/{{batch}}", MessageBatchesApi.retrieve),
        Route("DELETE", f"{_MESSAGES}/{{batch}}", MessageBatchesApi.delete),
        Route("POST", f"{_MESSAGES}/{{batch}}/cancel", MessageBatchesApi.cancel),
    )

    @router.get(f"{_MESSAGES}/{{batch}}/results")
    async def results(batch: str, request: Request) -> Response:
        content = await of_messages(caller_of(request.scope)).results(batch)
        return StreamingResponse(content, media_type="application/x-jsonl")

    return router
