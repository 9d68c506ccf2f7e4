"""The spans and metrics of a server, for the providers of the caller or those that the settings name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpt_oss_server import __version__
from gpt_oss_server.runs.observed import RunObserver
from gpt_oss_server.settings import Settings, SettingsError
from tools.extras import how_to_install

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider

    from gpt_oss_server.observe.telemetry.measures import Measures

SERVICE = "gpt-oss-server"


class Telemetry:
    """`close` sends what waits, with the providers that this object made."""

    def __init__(
        self, settings: Settings, tracers: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        """Signals without a provider go where the settings say. Raises `SettingsError` if that is nowhere."""
        self._own: list[SdkTracerProvider | SdkMeterProvider] = []
        self._measures: Measures | None = None
        self.observers: list[RunObserver] = []
        try:
            if tracers is None and is_sent(TRACES, settings):
                tracers = own_tracers = _tracer_provider(url_of(TRACES, settings), _resource())
                self._own.append(own_tracers)
            if meters is None and is_sent(METRICS, settings):
                meters = own_meters = _meter_provider(url_of(METRICS, settings), _resource())
                self._own.append(own_meters)
        except ImportError as error:
            raise SettingsError(f"OpenTelemetry: {how_to_install(error)}") from error
        self.tracer = None if tracers is None else tracers.get_tracer(SERVICE, __version__)
        if meters is not None:
            from gpt_oss_server.observe.telemetry.measures import Measures

            self._measures = Measures(meters.get_meter(SERVICE, __version__))
            self.observers.append(self._measures)
        if self.tracer is not None:
            from gpt_oss_server.observe.telemetry.run_spans import RunSpans

            self.observers.append(RunSpans(self.tracer))

    def on_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        if self._measures is not None:
            self._measures.on_tool_call(tool, outcome, seconds)

    async def close(self) -> None:
        for provider in self._own:
            await asyncio.to_thread(provider.shutdown)


def check_telemetry(settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
    """Raises `SettingsError` if something is to be sent and cannot be; loads no package for it."""
    for signal in SIGNALS:
        is_sent(signal, settings, environment)


def _tracer_provider(url: str | None, resource: Resource) -> SdkTracerProvider:
    """Sends from a thread of its own, in batches. The SDK reads the other variables (OTEL_…) itself."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return provider


def _meter_provider(url: str | None, resource: Resource) -> SdkMeterProvider:
    """Sends every minute, or every OTEL_METRIC_EXPORT_INTERVAL milliseconds."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=url))
    return MeterProvider([reader], resource)


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource

    attributes = {"service.version": __version__}
    resources = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in resources:
        attributes["service.name"] = SERVICE
    return Resource.create(attributes)


_HTTP = "http/protobuf"
_BASE = "OTEL_EXPORTER_OTLP"


TRACES, METRICS = SIGNALS = ("traces", "metrics")  # by the names that URLs and variables have for them


def is_sent(signal: str, settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the signal has a destination. Raises `SettingsError` if that cannot be one."""
    url, exporter = settings.otel_endpoint, environment.get(f"OTEL_{signal.upper()}_EXPORTER")
    is_off = exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise SettingsError(
                f"--otel-endpoint must be a URL such as http://127.0.0.1:4318, not {url!r}. Traces and "
                "metrics are sent by OTLP over HTTP; a collector's port for that is usually 4318."
            )
        is_of_another = any(url.endswith(f"/v1/{other}") for other in SIGNALS if other != signal)
        return not is_off and not is_of_another
    if is_off or not any(map(environment.get, _variables(signal, "ENDPOINT"))):
        return False
    for name in _variables(signal, "PROTOCOL"):
        if environment.get(name, _HTTP) != _HTTP:
            raise SettingsError(
                f"{name} is {environment[name]!r}, but this server sends {signal} by {_HTTP} alone. "
                "Unset it, and name the collector's port for HTTP, usually 4318."
            )
    return True


def url_of(signal: str, settings: Settings) -> str | None:
    """None: the SDK reads it from the variables."""
    url, path = settings.otel_endpoint, f"/v1/{signal}"
    return url if url is None or url.endswith(path) else url.rstrip("/") + path


def _variables(signal: str, what: str) -> tuple[str, str]:
    """The signal's own variable, and the one of all signals."""
    return f"{_BASE}_{signal.upper()}_{what}", f"{_BASE}_{what}"
