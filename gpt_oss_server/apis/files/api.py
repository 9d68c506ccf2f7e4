"""The routes of files and uploads: they translate between HTTP and `FilesApi` and `UploadsApi`."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response, StreamingResponse

from gpt_oss_server.apis.files.files import FilesApi
from gpt_oss_server.apis.files.uploads import CompleteUpload, CreateUpload, UploadsApi
from gpt_oss_server.http.answers import BINARY, attachment
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.runs.served import Served


def files_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1")
    files, uploads = partial(FilesApi, served), partial(UploadsApi, served)

    @router.post("/files")
    async def create(request: Request) -> Response:
        return JSONResponse(await files(caller_of(request.scope)).create(request))

    @router.get("/files/{file}/content")
    async def content(file: str, request: Request) -> Response:
        api = files(caller_of(request.scope))
        stored = await api.find(file)
        headers = {**attachment(stored.filename), "content-length": str(stored.bytes)}
        return StreamingResponse(api.keep.files.read(file), media_type=BINARY, headers=headers)

    @router.post("/uploads/{upload}/parts")
    async def add_part(upload: str, request: Request) -> Response:
        return JSONResponse(await uploads(caller_of(request.scope)).add_part(upload, request))

    add_routes(
        router,
        served.settings,
        files,
        Route("GET", "/files", FilesApi.listed, lists=True),
        Route("GET", "/files/{file}", FilesApi.retrieve),
        Route("DELETE", "/files/{file}", FilesApi.delete),
    )
    add_routes(
        router,
        served.settings,
        uploads,
        Route("POST", "/uploads", UploadsApi.create, CreateUpload),
        Route("POST", "/uploads/{upload}/complete", UploadsApi.complete, CompleteUpload),
        Route("POST", "/uploads/{upload}/cancel", UploadsApi.cancel),
    )
    return router
