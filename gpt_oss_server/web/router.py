"""GET / and /web/…: the playground's page and its files."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpt_oss_server.errors import NotFound
from gpt_oss_server.web.files import answer, files


def web_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return answer(files()["index.html"], request)

    @router.api_route("/web/{path:path}", methods=["GET", "HEAD"])
    async def asset(path: str, request: Request) -> Response:
        if (file := files().get(path)) is None:
            raise NotFound(f"The playground has no file {path!r}.")
        return answer(file, request)

    return router
