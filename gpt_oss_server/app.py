"""The application: wires all parts together, and does nothing else.

Takes an engine (or the user's own `infer_next_token`) and settings. Returns an ASGI application. Importing
this module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gpt_oss_server import __version__
from gpt_oss_server.own_packages import require_own_packages

require_own_packages()  # before the imports that would fail without a reason

from gpt_oss_server.chat.api import chat_router
from gpt_oss_server.chat.service import ChatService
from gpt_oss_server.completions.api import completions_router
from gpt_oss_server.containers.api import containers_router
from gpt_oss_server.errors import ApiError, InvalidRequest, MethodNotAllowed, NotFound
from gpt_oss_server.http.answers import error_answer
from gpt_oss_server.http.edge import Edge
from gpt_oss_server.http.hosts import HostGuard, Hosts
from gpt_oss_server.http.not_found import intended_path, methods_of
from gpt_oss_server.http.openapi_document import describe
from gpt_oss_server.http.origins import OriginGuard, Origins
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.ops.keys.guard import KeyGuard
from gpt_oss_server.ops.limits.guard import LimitGuard
from gpt_oss_server.pages.router import pages_router
from gpt_oss_server.responses.api import responses_router
from gpt_oss_server.responses.conversations_api import conversations_router
from gpt_oss_server.responses.service import ResponsesService
from gpt_oss_server.responses.socket.api import socket_router
from gpt_oss_server.responses.traces import traces_router
from gpt_oss_server.serving.models_api import models_router
from gpt_oss_server.serving.served import Served
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store
from gpt_oss_server.tooling.toolset import ToolsetMaker
from inference.callable_engine import CallableEngine
from inference.engine import Engine

InferNextToken = Callable[..., int]  # (tokens, temperature[, new_request]) -> token, as in the reference


def create_app(
    engine: Engine | InferNextToken,
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    ids: Ids = random_ids,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """A server for `engine`. It closes the engine when it shuts down."""
    settings = settings or Settings()
    tools = ToolsetMaker(settings)
    served = Served(_as_engine(engine), settings, store=store, ids=ids, clock=clock, tools=tools)
    service, chat = ResponsesService(served), ChatService(served)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        served.keys.start()
        tools.start()
        served.make_ready()
        served.stores.start()
        service.continuing.start()
        yield
        await served.keys.close()
        await service.close()

    # A redirect would bypass a proxy in front of the server; see Edge.
    app = FastAPI(
        title="gpt-oss-server",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's page loads its scripts from a CDN; `pages` has one that works offline
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(responses_router(service))
    app.include_router(traces_router(service))
    origins = Origins(settings)
    app.include_router(socket_router(service, origins))
    app.include_router(conversations_router(service))
    app.include_router(chat_router(chat))
    app.include_router(completions_router(served, chat.prompt))
    app.include_router(models_router(served))
    app.include_router(containers_router(service, tools, clock))
    app.include_router(pages_router(served))
    describe(app)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    _guard(app, served, origins)
    return app


def _guard(app: FastAPI, served: Served, origins: Origins) -> None:
    """Adds the layers around the routes, from the inside out."""
    if served.limiter.is_needed:
        app.add_middleware(LimitGuard, limiter=served.limiter)
    if not served.keys.is_open:
        app.add_middleware(KeyGuard, keys=served.keys)
    app.add_middleware(OriginGuard, origins=origins)
    app.add_middleware(HostGuard, hosts=Hosts(served.settings))
    app.add_middleware(Edge)


def _as_engine(given: Engine | InferNextToken) -> Engine:
    """Wraps a function that returns the next token; an engine is recognized by its `generate`."""
    return cast(Engine, given) if hasattr(given, "generate") else CallableEngine(given)


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_answer(error)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """Starlette's own errors (no such path, wrong method), in the error body of this server."""
    assert isinstance(error, HTTPException)
    path, method, routes = request.scope["path"], request.method, request.app.routes
    if error.status_code == 404:
        other = intended_path(routes, path, method)
        advice = (
            f"did you mean {other}? A client's base URL ends in /v1"
            if other
            else "/openapi.json lists all paths"
        )
        return await _api_error(request, NotFound(f"This server has no {path}; {advice}."))
    if error.status_code == 405:
        return await _api_error(request, MethodNotAllowed(path, method, methods_of(routes, path)))
    return await _api_error(request, InvalidRequest(str(error.detail)))
