"""The routes of the containers API.

Takes HTTP requests and returns JSON about containers and files, and the bytes of files. The model wrote the
files in /mnt/data, so the bytes are served as an attachment that no browser interprets.
"""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.containers.sessions import Containers, CreateContainer
from gpt_oss_server.http.answers import BINARY, attachment
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import documented, read_body
from gpt_oss_server.http.paging import page
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.http.uploads import read_upload
from gpt_oss_server.runs.served import Served


def containers_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/containers")
    containers = Containers(served)
    _add_containers(router, containers, served)
    _add_files(router, containers, served)
    return router


def _add_containers(router: APIRouter, containers: Containers, served: Served) -> None:
    @router.post("", openapi_extra=documented(CreateContainer))
    async def create(request: Request) -> Response:
        caller, body, headers = await read_known(request, CreateContainer, served.settings)
        wanted = read_body(body, CreateContainer, '{"name": "data"}')
        created = await containers.create(served.ids("cntr"), wanted, caller)
        return JSONResponse(created.as_json(), headers=headers)

    @router.get("")
    async def listed(request: Request) -> Response:
        own = await containers.created_by(caller_of(request.scope).client)
        name = request.query_params.get("name")
        shown = [container.as_json() for container in own]
        matching = [container for container in shown if name in (None, container["name"])]
        return JSONResponse(page(matching, request.query_params))

    @router.get("/{container}")
    async def retrieve(container: str, request: Request) -> Response:
        opened = await containers.find(container, caller_of(request.scope))
        return JSONResponse(opened.as_json())

    @router.delete("/{container}")
    async def delete(container: str, request: Request) -> Response:
        await containers.delete(container, caller_of(request.scope))
        return JSONResponse({"id": container, "object": "container.deleted", "deleted": True})


def _add_files(router: APIRouter, containers: Containers, served: Served) -> None:
    @router.get("/{container}/files")
    async def files(container: str, request: Request) -> Response:
        opened = await containers.find(container, caller_of(request.scope))
        listed = sorted(await opened.session.files(), key=lambda info: info.modified)
        return JSONResponse(page([opened.file_as_json(info) for info in listed], request.query_params))

    @router.post("/{container}/files")
    async def upload(container: str, request: Request) -> Response:
        caller = caller_of(request.scope)
        opened = await containers.find_to_fill(container, caller)  # first: a file that none takes is not read
        sent = await read_upload(request, served.settings.max_body_bytes)
        if isinstance(sent, str):
            sent = await served.stores.of(caller.owner).files.whole(sent, "file_id")
        return JSONResponse(opened.file_as_json(await opened.put(*sent, caller)))

    @router.get("/{container}/files/{file}")
    async def retrieve_file(container: str, file: str, request: Request) -> Response:
        opened = await containers.find(container, caller_of(request.scope))
        return JSONResponse(opened.file_as_json(await opened.file(file)))

    @router.get("/{container}/files/{file}/content")
    async def content(container: str, file: str, request: Request) -> Response:
        opened = await containers.find(container, caller_of(request.scope))
        info = await opened.file(file)
        headers = attachment(info.path.rpartition("/")[2])
        return Response(await opened.read(info), media_type=BINARY, headers=headers)

    @router.delete("/{container}/files/{file}")
    async def delete_file(container: str, file: str, request: Request) -> Response:
        opened = await containers.find(container, caller_of(request.scope))
        await opened.remove(await opened.file(file))
        return JSONResponse({"id": file, "object": "container.file.deleted", "deleted": True})
