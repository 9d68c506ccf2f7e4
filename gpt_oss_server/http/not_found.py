"""Requests that reach no route: whose path does not exist or support the method, or that a guard refuses."""

import re
from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match

from gpt_oss_server.errors import ApiError, InvalidRequest, MethodNotAllowed, NotFound
from gpt_oss_server.http.answers import error_answer

_METHODS = ("GET", "HEAD", "POST", "DELETE")  # the methods of this server's routes


def intended_path(routes: Sequence[BaseRoute], path: str, method: str) -> str | None:
    """The existing path that the client probably intended, None if no candidate exists."""
    plain = re.sub("/{2,}", "/", path)
    for candidate in (
        plain,
        f"/v1{plain}",
        re.sub("^(/v1)+", "/v1", plain),
        re.sub("^/.*?/v1/", "/v1/", plain),
    ):
        if candidate != path and any(_matches(route, method, candidate) for route in routes):
            return candidate
    return None


def template_of(routes: Sequence[BaseRoute], path: str, method: str) -> str | None:
    """The path of the route that answers such a request, with its parameters' names."""
    for route in routes:
        if _matches(route, method, path):
            # FastAPI keeps the routes of an included router together.
            inner = getattr(route, "original_router", None)
            return template_of(inner.routes, path, method) if inner else getattr(route, "path", None)
    return None


def _matches(route: BaseRoute, method: str, path: str) -> bool:
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return route.matches(scope)[0] is Match.FULL


def add_error_answers(app: FastAPI) -> None:
    """Errors of this server, and Starlette's own, are answered in the error body of this server."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_answer(error)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """No such path, or the wrong method."""
    assert isinstance(error, HTTPException)
    path, method, routes = request.scope["path"], request.method, request.app.routes
    if error.status_code == 404:
        other = intended_path(routes, path, method)
        advice = (
            f"did you mean {other}? A client's base URL ends in /v1"
            if other
            else "/openapi.json lists all paths"
        )
        return error_answer(NotFound(f"This server has no {path}; {advice}."))
    if error.status_code == 405:
        allowed = [each for each in _METHODS if any(_matches(route, each, path) for route in routes)]
        return error_answer(MethodNotAllowed(path, method, allowed))
    return error_answer(InvalidRequest(str(error.detail)))
