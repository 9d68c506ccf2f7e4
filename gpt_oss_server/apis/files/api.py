"""The routes of files, uploads and skills: they translate between HTTP and the APIs without it."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response, StreamingResponse

from gpt_oss_server.apis.files.files import FilesApi
from gpt_oss_server.apis.files.skills import SkillsApi, UpdateSkill
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

    _add_skills(router, served)
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


def _add_skills(router: APIRouter, served: Served) -> None:
    skills, one = partial(SkillsApi, served), "/skills/{skill}"

    @router.post("/skills")
    async def create(request: Request) -> Response:
        return JSONResponse(await skills(caller_of(request.scope)).create(request))

    @router.post(f"{one}/versions")
    async def add_version(skill: str, request: Request) -> Response:
        return JSONResponse(await skills(caller_of(request.scope)).add_version(skill, request))

    @router.get(f"{one}/content")
    @router.get(f"{one}/versions/{{version}}/content")
    async def content(skill: str, request: Request, version: str | None = None) -> Response:
        name, bundle = await skills(caller_of(request.scope)).bundle(skill, version)
        return Response(bundle, media_type=BINARY, headers=attachment(name))

    add_routes(
        router,
        served.settings,
        skills,
        Route("GET", "/skills", SkillsApi.listed, lists=True),
        Route("GET", one, SkillsApi.retrieve),
        Route("POST", one, SkillsApi.update, UpdateSkill),
        Route("DELETE", one, SkillsApi.delete),
        Route("GET", f"{one}/versions", SkillsApi.versions, lists=True),
        Route("GET", f"{one}/versions/{{version}}", SkillsApi.version),
        Route("DELETE", f"{one}/versions/{{version}}", SkillsApi.delete_version),
    )
