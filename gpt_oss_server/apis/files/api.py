"""The routes of files and uploads: they translate between HTTP and `FilesApi` and `UploadsApi`."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response, StreamingResponse

from gpt_oss_server.apis.files.files import FilesApi, shown
from gpt_oss_server.apis.files.uploads import CompleteUpload, CreateUpload, UploadsApi
from gpt_oss_server.http.answers import BINARY, attachment
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.large_work import json_answer
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.runs.served import Served


def files_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1")
    _add_files(router, served)
    _add_uploads(router, served)
    return router


def _add_files(router: APIRouter, served: Served) -> None:
    def of(request: Request) -> FilesApi:
        return FilesApi(served, caller_of(request.scope))

    @router.post("/files")
    async def create(request: Request) -> Response:
        return JSONResponse(await of(request).create(request))

    @router.get("/files")
    async def listed(request: Request) -> Response:
        return await json_answer(await of(request).listed(request.query_params))

    @router.get("/files/{file}")
    async def retrieve(file: str, request: Request) -> Response:
        return JSONResponse(shown(await of(request).find(file)))

    @router.delete("/files/{file}")
    async def delete(file: str, request: Request) -> Response:
        return JSONResponse(await of(request).delete(file))

    @router.get("/files/{file}/content")
    async def content(file: str, request: Request) -> Response:
        api = of(request)
        stored = await api.find(file)
        headers = {**attachment(stored.filename), "content-length": str(stored.bytes)}
        return StreamingResponse(api.keep.files.read(file), media_type=BINARY, headers=headers)


def _add_uploads(router: APIRouter, served: Served) -> None:
    @router.post("/uploads", openapi_extra=documented(CreateUpload))
    async def create(request: Request) -> Response:
        caller, body, headers = await read_known(request, CreateUpload, served.settings)
        return JSONResponse(await UploadsApi(served, caller).create(body), headers=headers)

    @router.post("/uploads/{upload}/parts")
    async def add_part(upload: str, request: Request) -> Response:
        return JSONResponse(await UploadsApi(served, caller_of(request.scope)).add_part(upload, request))

    @router.post("/uploads/{upload}/complete", openapi_extra=documented(CompleteUpload))
    async def complete(upload: str, request: Request) -> Response:
        caller, body, headers = await read_known(request, CompleteUpload, served.settings)
        return JSONResponse(await UploadsApi(served, caller).complete(upload, body), headers=headers)

    @router.post("/uploads/{upload}/cancel")
    async def cancel(upload: str, request: Request) -> Response:
        return JSONResponse(await UploadsApi(served, caller_of(request.scope)).cancel(upload))
