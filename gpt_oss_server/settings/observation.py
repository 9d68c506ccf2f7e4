"""The rows of the settings' table about what operators watch: metrics and traces.

See `settings.Settings`, of which they are a part.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.settings.options import choice, optional, setting, text


@dataclass(frozen=True, kw_only=True)
class ObservationSettings:
    metrics_names: str = setting(
        "own",
        choice("own", "vllm", "both", "off"),
        "Operations",
        "The names of the figures at `/metrics`: this server's (`gpt_oss_…`), those of vLLM that dashboards "
        "and autoscalers know (`vllm:…`), or both; off: there is no `/metrics`.",
    )
    otel_endpoint: str | None = setting(
        None,
        optional(text("URL")),
        "Operations",
        "The OTLP endpoint that takes OpenTelemetry's traces and metrics, such as `http://127.0.0.1:4318`; "
        "`none` is the value of `OTEL_EXPORTER_OTLP_ENDPOINT`; without either, none are sent. Needs "
        "`gpt-oss-server[otel]`.",
    )
