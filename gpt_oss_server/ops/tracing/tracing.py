"""Whether this server traces, and what it then needs: the provider, and what watches runs and requests.

Takes the settings and the environment, or a provider of the caller's own. Returns a `Tracing`, or None. Its
constructor needs the packages of `gpt-oss-server[otel]`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpt_oss_server import __version__
from gpt_oss_server.settings import Settings, SettingsError
from tools.extras import how_to_install

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider
    from opentelemetry.trace import TracerProvider

    from gpt_oss_server.ops.tracing.runs import RunSpans

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PATH = "/v1/traces"
_HTTP = "http/protobuf"
SERVICE = "gpt-oss-server"


class Tracing:
    """What of a server traces. `close` sends the spans that wait."""

    def __init__(self, provider: TracerProvider, own: SdkProvider | None = None) -> None:
        from gpt_oss_server.ops.tracing.runs import RunSpans

        self.tracer = provider.get_tracer(SERVICE, __version__)
        self.runs: RunSpans = RunSpans(self.tracer)
        self._own = own

    async def close(self) -> None:
        if self._own is not None:
            await asyncio.to_thread(self._own.shutdown)


def check_tracing(settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether traces are wanted. Raises `SettingsError` if they cannot be sent; loads no package for it."""
    named = any(environment.get(name) for name in _ENDPOINTS)
    if settings.otel_endpoint is None and (not named or _is_switched_off(environment)):
        return False
    if settings.otel_endpoint is None:
        _check_protocol(environment)
    else:
        _checked(settings.otel_endpoint)
    return True


def tracing_of(
    settings: Settings, provider: TracerProvider | None = None, environment: Mapping[str, str] = os.environ
) -> Tracing | None:
    """None if nothing takes traces. Raises `SettingsError` if they are wanted and cannot be sent."""
    if provider is not None:
        return Tracing(provider)
    if not check_tracing(settings, environment):
        return None
    try:
        own = _provider(settings.otel_endpoint, environment)
    except ImportError as error:
        raise SettingsError(f"OpenTelemetry traces: {how_to_install(error)}") from error
    return Tracing(own, own)


def _provider(endpoint: str | None, environment: Mapping[str, str]) -> SdkProvider:
    """Sends from a thread of its own, in batches. The SDK reads the other variables (OTEL_…) itself."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    attributes = {"service.version": __version__}
    resources = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in resources:
        attributes["service.name"] = SERVICE
    provider = TracerProvider(resource=Resource.create(attributes))
    checked = None if endpoint is None else _checked(endpoint)  # None: as the variables say
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=checked)))
    return provider


def _is_switched_off(environment: Mapping[str, str]) -> bool:
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return disabled or environment.get("OTEL_TRACES_EXPORTER") == "none"


def _checked(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError(
            f"--otel-endpoint must be a URL such as http://127.0.0.1:4318, not {endpoint!r}. Traces are sent "
            "by OTLP over HTTP; a collector's port for that is usually 4318."
        )
    return endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH


def _check_protocol(environment: Mapping[str, str]) -> None:
    for name in _PROTOCOLS:
        if environment.get(name, _HTTP) != _HTTP:
            raise SettingsError(
                f"{name} is {environment[name]!r}, but this server sends traces by {_HTTP} alone. Unset it, "
                "and name the collector's port for HTTP, usually 4318."
            )
