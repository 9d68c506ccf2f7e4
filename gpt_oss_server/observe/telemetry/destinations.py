"""Where traces and metrics go: the setting, and OpenTelemetry's standard variables, without its packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpt_oss_server.settings import Settings, SettingsError

_HTTP = "http/protobuf"
_BASE = "OTEL_EXPORTER_OTLP"


@dataclass(frozen=True, slots=True)
class Signal:
    """One kind of telemetry, by the name that URLs and variables have for it."""

    name: str

    @property
    def path(self) -> str:
        return f"/v1/{self.name}"

    def variables(self, what: str) -> tuple[str, str]:
        """The signal's own variable, and the one of all signals."""
        return f"{_BASE}_{self.name.upper()}_{what}", f"{_BASE}_{what}"

    def is_switched_off(self, environment: Mapping[str, str]) -> bool:
        disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        return disabled or environment.get(f"OTEL_{self.name.upper()}_EXPORTER") == "none"


TRACES, METRICS = SIGNALS = (Signal("traces"), Signal("metrics"))


def is_sent(signal: Signal, settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the signal has a destination. Raises `SettingsError` if that cannot be one."""
    url = settings.otel_endpoint
    if url is not None:
        _check(url)
        is_of_another = any(url.endswith(other.path) for other in SIGNALS if other is not signal)
        return not signal.is_switched_off(environment) and not is_of_another
    if signal.is_switched_off(environment) or not any(map(environment.get, signal.variables("ENDPOINT"))):
        return False
    _check_protocol(signal, environment)
    return True


def url_of(signal: Signal, settings: Settings) -> str | None:
    """None: the SDK reads it from the variables."""
    url = settings.otel_endpoint
    return url if url is None or url.endswith(signal.path) else url.rstrip("/") + signal.path


def _check(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError(
            f"--otel-endpoint must be a URL such as http://127.0.0.1:4318, not {endpoint!r}. Traces and "
            "metrics are sent by OTLP over HTTP; a collector's port for that is usually 4318."
        )


def _check_protocol(signal: Signal, environment: Mapping[str, str]) -> None:
    for name in signal.variables("PROTOCOL"):
        if environment.get(name, _HTTP) != _HTTP:
            raise SettingsError(
                f"{name} is {environment[name]!r}, but this server sends {signal.name} by {_HTTP} alone. "
                "Unset it, and name the collector's port for HTTP, usually 4318."
            )
