"""What one server lets its operator see: figures, and traces and metrics if something takes them.

It must not know how figures are counted, nor what a span holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.http.edge import EdgeObserver
from gpt_oss_server.http.guards.keys import OnWrongKey
from gpt_oss_server.observe.metrics.api import metrics_router
from gpt_oss_server.observe.metrics.metrics import Metrics
from gpt_oss_server.observe.metrics.stores import measured
from gpt_oss_server.observe.telemetry.telemetry import telemetry_of
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.keep import Stores

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class Observation:
    def __init__(
        self, settings: Settings, tracers: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        """`tracers`, `meters`: where these go, instead of what the settings and the environment say."""
        self._metrics = None if settings.metrics_names == "off" else Metrics(settings.metrics_names)
        self._telemetry = telemetry_of(settings, tracers, meters)

    def on_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        if self._metrics is not None:
            self._metrics.on_tool_call(tool, outcome, seconds)
        self._telemetry.on_tool_call(tool, outcome, seconds)

    @property
    def on_wrong_key(self) -> OnWrongKey | None:
        return None if self._metrics is None else self._metrics.on_wrong_key

    @property
    def of_http(self) -> tuple[EdgeObserver, ...]:
        return () if self._metrics is None else (self._metrics.http,)

    def measured(self, stores: Stores) -> Stores:
        return stores if self._metrics is None else measured(stores, self._metrics.figures)

    def watch(self, app: FastAPI, service: ResponsesService) -> None:
        """Observes the runs of the service, and serves the figures."""
        observers = service.served.observers
        if self._metrics is not None:
            observers.append(self._metrics.runs)
            app.include_router(metrics_router(self._metrics, service))
        observers += self._telemetry.run_observers(service.served.model.names)

    def add_spans(self, app: FastAPI) -> None:
        """Spans of requests. Add the layers that these shall see before them."""
        if self._telemetry.tracer is not None:
            from gpt_oss_server.observe.telemetry.http_spans import HttpSpans  # needs OpenTelemetry

            app.add_middleware(HttpSpans, tracer=self._telemetry.tracer)

    def start(self) -> None:
        """Call it in the event loop."""
        if self._metrics is not None:
            self._metrics.loop_lag.start()

    async def close(self) -> None:
        if self._metrics is not None:
            self._metrics.loop_lag.close()
        await self._telemetry.close()
