"""The routes of batches: they translate between HTTP and `BatchesApi`."""

from functools import partial

from fastapi import APIRouter

from gpt_oss_server.apis.batches.batches import BatchesApi, CreateBatch
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.runs.served import Served


def batches_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/batches")
    add_routes(
        router,
        served.settings,
        partial(BatchesApi, served),
        Route("POST", "", BatchesApi.create, CreateBatch),
        Route("GET", "", BatchesApi.listed, lists=True),
        Route("GET", "/{batch}", BatchesApi.find),
        Route("POST", "/{batch}/cancel", BatchesApi.cancel),
    )
    return router
