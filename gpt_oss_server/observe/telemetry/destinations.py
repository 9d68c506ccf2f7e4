"""Where traces and metrics go: the setting, and OpenTelemetry's standard variables, without its packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpt_oss_server.settings import Settings, SettingsError

_HTTP = "http/protobuf"
_BASE = "OTEL_EXPORTER_OTLP"


TRACES, METRICS = SIGNALS = ("traces", "metrics")  # by the names that URLs and variables have for them


def is_sent(signal: str, settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the signal has a destination. Raises `SettingsError` if that cannot be one."""
    url, exporter = settings.otel_endpoint, environment.get(f"OTEL_{signal.upper()}_EXPORTER")
    is_off = exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if url is not None:
        _check(url)
        is_of_another = any(url.endswith(f"/v1/{other}") for other in SIGNALS if other != signal)
        return not is_off and not is_of_another
    if is_off or not any(map(environment.get, _variables(signal, "ENDPOINT"))):
        return False
    _check_protocol(signal, environment)
    return True


def url_of(signal: str, settings: Settings) -> str | None:
    """None: the SDK reads it from the variables."""
    url, path = settings.otel_endpoint, f"/v1/{signal}"
    return url if url is None or url.endswith(path) else url.rstrip("/") + path


def _variables(signal: str, what: str) -> tuple[str, str]:
    """The signal's own variable, and the one of all signals."""
    return f"{_BASE}_{signal.upper()}_{what}", f"{_BASE}_{what}"


def _check(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError(
            f"--otel-endpoint must be a URL such as http://127.0.0.1:4318, not {endpoint!r}. Traces and "
            "metrics are sent by OTLP over HTTP; a collector's port for that is usually 4318."
        )


def _check_protocol(signal: str, environment: Mapping[str, str]) -> None:
    for name in _variables(signal, "PROTOCOL"):
        if environment.get(name, _HTTP) != _HTTP:
            raise SettingsError(
                f"{name} is {environment[name]!r}, but this server sends {signal} by {_HTTP} alone. "
                "Unset it, and name the collector's port for HTTP, usually 4318."
            )
