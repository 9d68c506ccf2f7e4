"""What one server lets its operator see: figures, and traces if something takes them.

Takes the settings. Returns the parts that the application puts where the work is. It must not know how
figures are counted, nor what a span holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

from gpt_oss_server.http.edge import EdgeObserver
from gpt_oss_server.ops.keys.guard import OnWrongKey
from gpt_oss_server.ops.metrics.api import metrics_router
from gpt_oss_server.ops.metrics.metrics import Metrics
from gpt_oss_server.ops.metrics.stores import measured
from gpt_oss_server.ops.tracing.tracing import tracing_of
from gpt_oss_server.responses.service import ResponsesService
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.kinds.table import Stores
from tools.toolbox import OnCall

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class Observation:
    def __init__(self, settings: Settings, provider: TracerProvider | None = None) -> None:
        """`provider`: where spans go, instead of what the settings and the environment say."""
        self._metrics = None if settings.metrics_names == "off" else Metrics(settings.metrics_names)
        self._tracing = tracing_of(settings, provider)

    @property
    def on_tool_call(self) -> OnCall | None:
        return None if self._metrics is None else self._metrics.on_tool_call

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
        if self._metrics is not None:
            service.served.observers.append(self._metrics.runs)
            app.include_router(metrics_router(self._metrics, service))
        if self._tracing is not None:
            service.served.observers.append(self._tracing.runs)

    def add_spans(self, app: FastAPI) -> None:
        """Spans of requests. Add the layers that these shall see before them."""
        if self._tracing is not None:
            from gpt_oss_server.ops.tracing.http import HttpSpans  # needs OpenTelemetry's packages

            app.add_middleware(HttpSpans, tracer=self._tracing.tracer)

    async def close(self) -> None:
        if self._tracing is not None:
            await self._tracing.close()
