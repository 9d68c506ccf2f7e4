"""The routes of vector stores: they translate between HTTP and `StoresApi`."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.apis.vector_stores.ingestion import Ingestion
from gpt_oss_server.apis.vector_stores.stores import (
    Attach,
    AttachMany,
    CreateStore,
    Search,
    Shown,
    StoresApi,
    UpdateFile,
    UpdateStore,
)
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import Body, documented
from gpt_oss_server.http.large_work import json_answer
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.runs.served import Served

Operation = Callable[..., Awaitable[Shown]]
_STORE, _FILE, _BATCH = "/{store}", "/{store}/files/{file}", "/{store}/file_batches/{batch}"
_SENT: tuple[tuple[str, type[Body], Operation], ...] = (
    ("", CreateStore, StoresApi.create),
    (_STORE, UpdateStore, StoresApi.update),
    (f"{_STORE}/search", Search, StoresApi.search),
    (f"{_STORE}/files", Attach, StoresApi.attach),
    (_FILE, UpdateFile, StoresApi.set_attributes),
    (f"{_STORE}/file_batches", AttachMany, StoresApi.attach_many),
)
_LISTS: tuple[tuple[str, Operation], ...] = (
    ("", StoresApi.listed),
    (f"{_STORE}/files", StoresApi.files),
    (f"{_BATCH}/files", StoresApi.files_of_batch),
)
_OTHERS: tuple[tuple[str, str, Operation], ...] = (
    ("GET", _STORE, StoresApi.retrieve),
    ("DELETE", _STORE, StoresApi.delete),
    ("GET", _FILE, StoresApi.file),
    ("DELETE", _FILE, StoresApi.detach),
    ("GET", f"{_FILE}/content", StoresApi.content),
    ("GET", _BATCH, StoresApi.batch),
    ("POST", f"{_BATCH}/cancel", StoresApi.cancel),
)


def vector_stores_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/vector_stores")
    ingestion = Ingestion(served.stores, served.settings.background_lease)
    served.stores.repeated.append(ingestion.repeated)

    def answer(operation: Operation, model: type[Body] | None = None, *, lists: bool = False) -> Any:
        async def endpoint(request: Request) -> Response:
            caller = caller_of(request.scope)
            headers: dict[str, str] = {}
            values: list[Any] = [*request.path_params.values()]
            if model is not None:
                caller, body, headers = await read_known(request, model, served.settings)
                values.append(body)
            elif lists:
                values.append(request.query_params)
            api = StoresApi(served, caller, ingestion.repeated.wake)
            return await json_answer(await operation(api, *values), headers=headers)

        return endpoint

    for path, model, operation in _SENT:
        extra = documented(model)
        router.add_api_route(path, answer(operation, model), methods=["POST"], openapi_extra=extra)
    for path, operation in _LISTS:
        router.add_api_route(path, answer(operation, lists=True), methods=["GET"])
    for method, path, operation in _OTHERS:
        router.add_api_route(path, answer(operation), methods=[method])
    return router
