"""The application: wires all parts together, and does nothing else.

Takes an engine (or the user's own `infer_next_token`) and settings. Returns an ASGI application. Importing
this module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, cast

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gpt_oss_server import __version__
from gpt_oss_server.own_packages import require_own_packages

require_own_packages()  # before the imports that would fail without a reason

from gpt_oss_server.apis.chat.api import chat_router
from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.apis.completions.api import completions_router
from gpt_oss_server.apis.containers.api import containers_router
from gpt_oss_server.apis.conversations.api import conversations_router
from gpt_oss_server.apis.models.api import models_router
from gpt_oss_server.apis.responses.api import responses_router
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.apis.responses.socket.api import socket_router
from gpt_oss_server.apis.traces.api import traces_router
from gpt_oss_server.caller.guesses import Guesses
from gpt_oss_server.errors import ApiError, InvalidRequest, MethodNotAllowed, NotFound
from gpt_oss_server.http.answers import error_answer
from gpt_oss_server.http.edge import Edge
from gpt_oss_server.http.guards.hosts import HostGuard, Hosts
from gpt_oss_server.http.guards.keys import KeyGuard
from gpt_oss_server.http.guards.limits import LimitGuard
from gpt_oss_server.http.guards.origins import OriginGuard, Origins
from gpt_oss_server.http.not_found import intended_path, methods_of
from gpt_oss_server.http.openapi.document import describe
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.items.hosted import HostedTool
from gpt_oss_server.observe.health.api import health_router
from gpt_oss_server.observe.health.counted_engine import checked
from gpt_oss_server.observe.health.state import Health
from gpt_oss_server.observe.observation import Observation
from gpt_oss_server.playground.router import pages_router
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.toolset.offered import ToolsetMaker
from gpt_oss_server.toolset.outside import known_kinds
from inference.callable_engine import CallableEngine
from inference.engine import Engine

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

InferNextToken = Callable[..., int]  # (tokens, temperature[, new_request]) -> token, as in the reference


def create_app(
    engine: Engine | InferNextToken,
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    tools: Iterable[HostedTool] = (),
    ids: Ids = random_ids,
    clock: Callable[[], float] = time.time,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> FastAPI:
    """A server for `engine`, which it closes when it shuts down.

    `tools` join those of the server and of installed packages. OpenTelemetry's spans and metrics go to the
    providers, where they are given.
    """
    settings = settings or Settings()
    observation = Observation(settings, tracer_provider, meter_provider)
    toolset = ToolsetMaker(settings, known_kinds(tools), on_call=observation.on_tool_call)
    stores = observation.measured(open_stores(settings, store))
    served = Served(checked(_as_engine(engine)), settings, stores=stores, ids=ids, clock=clock, tools=toolset)
    health = Health(served.model.engine, interval=settings.engine_check_interval)
    service, chat = ResponsesService(served), ChatService(served)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        served.keys.start()
        toolset.start()
        served.model.make_ready()
        served.stores.start()
        service.continuing.start()
        health.start()
        observation.start()
        yield
        await health.close()
        await served.keys.close()
        await service.close()
        await observation.close()

    app = _without_routes(lifespan)
    app.state.service, app.state.health = service, health
    _add_routes(app, service, chat, origins := Origins(settings))
    app.include_router(health_router(served, health))
    app.include_router(containers_router(service, toolset, clock))
    observation.watch(app, service)
    app.include_router(pages_router(served))
    describe(app)
    _guard(app, served, origins, observation)
    return app


def _without_routes(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]) -> FastAPI:
    # A redirect would bypass a proxy in front of the server; see Edge.
    return FastAPI(
        title="gpt-oss-server",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's page loads its scripts from a CDN; `pages` has one that works offline
        redoc_url=None,
    )


def _guard(app: FastAPI, served: Served, origins: Origins, observation: Observation) -> None:
    """Adds the layers around the routes, from the inside out."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    if served.limiter.is_needed:
        app.add_middleware(LimitGuard, limiter=served.limiter)
    if not served.keys.is_open:
        guesses = Guesses(served.settings.wrong_keys_per_minute)
        app.add_middleware(KeyGuard, keys=served.keys, guesses=guesses, on_wrong_key=observation.on_wrong_key)
    app.add_middleware(OriginGuard, origins=origins)
    app.add_middleware(HostGuard, hosts=Hosts(served.settings))
    observation.add_spans(app)
    app.add_middleware(Edge, observers=observation.of_http)


def _add_routes(app: FastAPI, service: ResponsesService, chat: ChatService, origins: Origins) -> None:
    served = service.served
    for router in (
        responses_router(service),
        traces_router(served),
        socket_router(service, origins),
        conversations_router(served),
        chat_router(chat),
        completions_router(served, chat.prompt),
        models_router(served),
    ):
        app.include_router(router)


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
