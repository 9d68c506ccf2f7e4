"""Where traces and metrics go: the flag, the standard variables, and what is wrong with them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gpt_oss_server.observe.telemetry.destinations import SIGNALS, is_sent, url_of
from gpt_oss_server.observe.telemetry.telemetry import check_telemetry
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.commands import ANSWER, script
from tests.doubles.server_process import serving

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Collector(HTTPServer):
    """Takes traces and metrics by OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        take: dict[str, Callable[[bytes], None]] = {
            "/v1/traces": lambda body: self.traces.append(ExportTraceServiceRequest.FromString(body)),
            "/v1/metrics": lambda body: self.metrics.append(ExportMetricsServiceRequest.FromString(body)),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers["content-length"]))
                take[handler.path](body)
                handler.send_response(200)
                handler.send_header("content-length", "0")
                handler.end_headers()

            def log_message(handler, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, daemon=True)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


HERE = "http://127.0.0.1:4318"
EACH = "OTEL_EXPORTER_OTLP_{}_ENDPOINT"


@pytest.mark.parametrize(
    ("endpoint", "environment", "sent"),
    [
        (None, {}, set()),
        (None, {BASE: HERE}, {"traces", "metrics"}),
        (None, {EACH.format("TRACES"): HERE}, {"traces"}),
        (None, {EACH.format("METRICS"): HERE}, {"metrics"}),
        (None, {BASE: HERE, "OTEL_SDK_DISABLED": "true"}, set()),
        (None, {BASE: HERE, "OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
        (None, {BASE: HERE, "OTEL_METRICS_EXPORTER": "none"}, {"traces"}),
        (HERE, {}, {"traces", "metrics"}),
        (HERE, {"OTEL_METRICS_EXPORTER": "none"}, {"traces"}),
        (f"{HERE}/v1/traces", {}, {"traces"}),
        (f"{HERE}/v1/metrics", {}, {"metrics"}),
    ],
)
def test_each_signal_is_sent_where_it_has_a_destination(
    endpoint: str | None, environment: dict[str, str], sent: set[str]
) -> None:
    settings = Settings(otel_endpoint=endpoint)
    found = {signal: url_of(signal, settings) for signal in SIGNALS if is_sent(signal, settings, environment)}
    assert set(found) == sent
    for name, url in found.items():
        assert url == (None if endpoint is None else f"{HERE}/v1/{name}")


@pytest.mark.parametrize(
    ("settings", "environment", "message"),
    [
        (Settings(otel_endpoint="collector:4318"), {}, "--otel-endpoint must be a URL"),
        (Settings(otel_endpoint="grpc://collector:4317"), {}, "4318"),
        (Settings(), {BASE: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf alone"),
    ],
)
def test_what_cannot_work_is_refused(settings: Settings, environment: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_telemetry(settings, environment)


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_collector_gets_spans_and_metrics_when_the_server_stops_at_the_latest(
    by: str, collector: Collector, tmp_path: Path
) -> None:
    flags = ["--otel-endpoint", collector.url] if by == "flag" else []
    environment = {"OTEL_SERVICE_NAME": "front"} | ({} if by == "flag" else {BASE: collector.url})
    with serving("--model", script(tmp_path, ANSWER), *flags, env=environment) as server:
        answer = httpx.post(f"{server.api}/responses", json={"input": "Hi"}, timeout=60)
        assert answer.status_code == 200, answer.text
    traced = [each for request in collector.traces for each in request.resource_spans]
    measured = [each for request in collector.metrics for each in request.resource_metrics]
    services = {
        attribute.value.string_value
        for each in (*traced, *measured)
        for attribute in each.resource.attributes
        if attribute.key == "service.name"
    }
    assert services == {"front"}
    spans = [span.name for each in traced for scope in each.scope_spans for span in scope.spans]
    assert sorted(spans) == ["POST /v1/responses", "chat scripted", "generate_content scripted"]
    metrics = {metric.name for each in measured for scope in each.scope_metrics for metric in scope.metrics}
    assert {"gen_ai.client.token.usage", "gen_ai.server.request.duration"} <= metrics


def test_without_its_packages_the_extra_is_named() -> None:
    hides = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('opentelemetry.sdk') or name.startswith('opentelemetry.exporter'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from gpt_oss_server.settings import Settings\n"
        "from gpt_oss_server.observe.telemetry.telemetry import telemetry_of\n"
        "telemetry_of(Settings(otel_endpoint='http://127.0.0.1:4318'))\n"
    )
    done = subprocess.run([sys.executable, "-c", hides], capture_output=True, text=True)
    assert "pip install 'gpt-oss-server[otel]'" in done.stderr
