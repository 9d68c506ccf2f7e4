"""What one server lets its operator see: figures, and traces and metrics if something takes them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.http.edge import EdgeObserver
from gpt_oss_server.http.guards.keys import OnWrongKey
from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figures
from gpt_oss_server.observe.metrics.metrics import Metrics
from gpt_oss_server.observe.telemetry.telemetry import Telemetry
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.keep import Stores
from gpt_oss_server.stores.sql.completions import Completions
from gpt_oss_server.stores.sql.events import EventLogs

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class Observation:
    def __init__(
        self, settings: Settings, tracers: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        """`tracers`, `meters`: where these go, instead of what the settings and the environment say."""
        self._metrics = None if settings.metrics_names == "off" else Metrics(settings.metrics_names)
        self._telemetry = Telemetry(settings, tracers, meters)
        self.on_wrong_key: OnWrongKey = lambda outcome: None
        self.of_http: tuple[EdgeObserver, ...] = ()
        if self._metrics is not None:
            self.on_wrong_key, self.of_http = self._metrics.on_wrong_key, (self._metrics.http,)

    def on_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        if self._metrics is not None:
            self._metrics.on_tool_call(tool, outcome, seconds)
        self._telemetry.on_tool_call(tool, outcome, seconds)

    def measured(self, stores: Stores) -> Stores:
        """The same stores. Claims are left out: a server looks for them all the time."""
        if self._metrics is None:
            return stores
        figures = self._metrics.figures
        return replace(
            stores,
            responses=cast(Store, _Measured(stores.responses, "responses", figures)),
            events=cast(EventLogs, _Measured(stores.events, "events", figures)),
            completions=cast(Completions, _Measured(stores.completions, "completions", figures)),
        )

    def watch(self, app: FastAPI, service: ResponsesService) -> None:
        """Observes the runs of the service, and serves the figures."""
        observers = service.served.observers
        if self._metrics is not None:
            observers.append(self._metrics.runs)
            for model in service.served.models.all:
                self._metrics.runs.expect(model.name)
            app.include_router(_metrics_router(self._metrics, service))
        observers += self._telemetry.observers

    def add_spans(self, app: FastAPI) -> None:
        """Spans of requests. Add the layers that these shall see before them."""
        if self._telemetry.tracer is not None:
            from gpt_oss_server.observe.telemetry.run_spans import HttpSpans  # needs OpenTelemetry

            app.add_middleware(HttpSpans, tracer=self._telemetry.tracer)

    def start(self) -> None:
        """Call it in the event loop."""
        if self._metrics is not None:
            self._metrics.loop_lag.start()

    async def close(self) -> None:
        if self._metrics is not None:
            self._metrics.loop_lag.close()
        await self._telemetry.close()


class _Measured:
    """Stands for a store. Anything but its operations is passed on as it is."""

    def __init__(self, store: object, name: str, figures: Figures) -> None:
        self._store = store
        self._name = name
        self._figures = figures

    def of(self, owner: str) -> _Measured:
        """The part of an owner counts for the same store. Only stores that have owners are asked."""
        return _Measured(cast(Any, self._store).of(owner), self._name, self._figures)

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._store, name)
        if name.startswith("_") or not inspect.iscoroutinefunction(part):
            return part
        operation = self._measuring(name, part)
        setattr(self, name, operation)  # the next look finds it without this method
        return operation

    def _measuring(self, name: str, operate: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        figures, store = self._figures, self._name

        async def operation(*args: Any, **kwargs: Any) -> Any:
            began, outcome = time.monotonic(), "failed"
            try:
                result = await operate(*args, **kwargs)
                outcome = "done"
                return result
            finally:
                figures.add(table.STORE_OPERATIONS, labels=(store, name, outcome))
                figures.observe(table.STORE_SECONDS, time.monotonic() - began, (store,))

        return operation


def _metrics_router(metrics: Metrics, service: ResponsesService) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def read(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, media_type = await metrics.text(service.served, lambda: service.background.count, accept)
        return Response(text, media_type=media_type, headers={"cache-control": "no-store"})

    return router
