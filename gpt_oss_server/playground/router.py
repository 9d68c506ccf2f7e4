"""GET /, /c/ID, /web/… and /docs. All pages work without a network, and run no script from elsewhere."""

from html import escape

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gpt_oss_server.errors import NotFound
from gpt_oss_server.playground.files import file_response, page_one_deeper, static_files, swagger_files
from gpt_oss_server.runs.served import Served

_POLICY = {
    "content-security-policy": "default-src 'none'; connect-src 'self'; font-src 'self' data:; "
    "img-src 'self' data:; script-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_REFERENCE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpt-oss-server: API reference</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}/docs/swagger-ui.css">
</head>
<body data-document="{root}/openapi.json">
<div id="reference"></div>
<noscript>The reference needs JavaScript. See <a href="{root}/openapi.json">openapi.json</a>.</noscript>
<script src="{root}/docs/swagger-ui-bundle.js"></script>
<script src="{root}/docs/start.js"></script>
</body>
</html>
"""


def pages_router(served: Served) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    if served.settings.web == "on":
        router.include_router(_playground_router())
    else:

        @router.api_route("/", methods=["GET", "HEAD"])
        async def to_reference(request: Request) -> Response:
            return RedirectResponse(f"{_root(request)}/docs")

    @router.api_route("/docs", methods=["GET", "HEAD"])
    async def reference(request: Request) -> Response:
        return HTMLResponse(_REFERENCE.format(root=escape(_root(request))), headers=_POLICY)

    @router.api_route("/docs/{name}", methods=["GET", "HEAD"])
    async def asset(name: str, request: Request) -> Response:
        if (file := swagger_files().get(name)) is None:
            raise NotFound(f"The API reference has no file {name!r}.")
        return file_response(file, request)

    return router


def _root(request: Request) -> str:
    """The path prefix of the server, where a proxy has given it one."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _playground_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return file_response(static_files()["index.html"], request)

    @router.api_route("/c/{conversation}", methods=["GET", "HEAD"])
    async def conversation(conversation: str, request: Request) -> Response:
        return file_response(page_one_deeper(), request)  # it reads its own address

    @router.api_route("/web/{path:path}", methods=["GET", "HEAD"])
    async def asset(path: str, request: Request) -> Response:
        if (file := static_files().get(path)) is None:
            raise NotFound(f"The playground has no file {path!r}.")
        return file_response(file, request)

    return router
