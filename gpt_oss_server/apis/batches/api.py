"""The routes of batches: they translate between HTTP and `BatchesApi`."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.batches.batches import BatchesApi, CreateBatch
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.runs.served import Served


def batches_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/batches")

    def of(request: Request) -> BatchesApi:
        return BatchesApi(served, caller_of(request.scope))

    @router.post("", openapi_extra=documented(CreateBatch))
    async def create(request: Request) -> Response:
        caller, body, headers = await read_known(request, CreateBatch, served.settings)
        return JSONResponse(await BatchesApi(served, caller).create(body), headers=headers)

    @router.get("")
    async def listed(request: Request) -> Response:
        return JSONResponse(await of(request).listed(request.query_params))

    @router.get("/{batch}")
    async def retrieve(batch: str, request: Request) -> Response:
        return JSONResponse(await of(request).find(batch))

    @router.post("/{batch}/cancel")
    async def cancel(batch: str, request: Request) -> Response:
        return JSONResponse(await of(request).cancel(batch))

    return router
