"""The application: wires all parts together, and does nothing else.

Takes an engine (or the user's own `infer_next_token`) and settings. Returns an ASGI application. Importing
this module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, cast

from fastapi import FastAPI

from gpt_oss_server import __version__
from gpt_oss_server.own_packages import require_own_packages

require_own_packages()  # before the imports that would fail without a reason

from gpt_oss_server.apis.messages.errors import ErrorsInOwnForm
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.apis.routes import api_routers, batch_work
from gpt_oss_server.http.edge import Edge
from gpt_oss_server.http.guards.layers import add_guards
from gpt_oss_server.http.guards.origins import Origins
from gpt_oss_server.http.not_found import add_error_answers
from gpt_oss_server.http.openapi.document import describe
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.items.hosted import HostedTool
from gpt_oss_server.observe.health.api import health_router
from gpt_oss_server.observe.health.state import Health, checked
from gpt_oss_server.observe.observation import Observation
from gpt_oss_server.playground.router import pages_router
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.toolset.offered import ToolsetMaker
from gpt_oss_server.toolset.outside import known_kinds
from inference.backends.callable_engine import CallableEngine
from inference.engine import Engine

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

InferNextToken = Callable[..., int]  # (tokens, temperature[, new_request]) -> token, as in the reference


def create_app(
    engine: Engine | InferNextToken,
    settings: Settings | None = None,
    *,
    models: Mapping[str, Engine | InferNextToken] | None = None,
    store: Store | None = None,
    tools: Iterable[HostedTool] = (),
    ids: Ids = random_ids,
    clock: Callable[[], float] = time.time,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> FastAPI:
    """A server for `engine`, which it closes when it shuts down.

    `models` are further engines by name; requests choose one by `model`. `tools` join those of the server and
    of installed packages. OpenTelemetry's spans and metrics go to the providers, where they are given.
    """
    settings = settings or Settings()
    observation = Observation(settings, tracer_provider, meter_provider)
    stores = observation.measured(open_stores(settings, store))
    kinds = known_kinds(tools, stores=stores)
    toolset = ToolsetMaker(settings, kinds, on_call=observation.on_tool_call)
    further = {name: _checked(other) for name, other in (models or {}).items()}
    served = Served(_checked(engine), settings, further, stores=stores, ids=ids, clock=clock, tools=toolset)
    health = Health(served.models.all, interval=settings.engine_check_interval)
    service, origins, batches = ResponsesService(served), Origins(settings), batch_work(served)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        served.start()
        toolset.start()
        service.continuing.start()
        health.start()
        observation.start()
        batches.start(app)
        yield
        await batches.close()
        await health.close()
        await service.close()
        await observation.close()

    app = _without_routes(lifespan)
    app.state.service, app.state.health = service, health
    for router in (*api_routers(served, service, origins), health_router(served, health)):
        app.include_router(router)
    observation.watch(app, service)
    app.include_router(pages_router(served))
    describe(app)
    _add_layers(app, served, origins, observation)
    return app


def _add_layers(app: FastAPI, served: Served, origins: Origins, observation: Observation) -> None:
    """The layers around the routes, from the inside out."""
    add_error_answers(app)
    add_guards(
        app,
        served.settings,
        limiter=served.limiter,
        keys=served.keys,
        origins=origins,
        on_wrong_key=observation.on_wrong_key,
    )
    observation.add_spans(app)
    app.add_middleware(Edge, observers=observation.of_http)
    app.add_middleware(ErrorsInOwnForm)


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


def _checked(model: Engine | InferNextToken) -> Engine:
    """Wraps a function that returns the next token; an engine is recognized by its `generate`."""
    return checked(cast(Engine, model) if hasattr(model, "generate") else CallableEngine(model))
