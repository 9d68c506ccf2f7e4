"""Where traces and metrics go: the flag, the standard variables, and what is wrong with them."""

from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gpt_oss_server.observe.telemetry.telemetry import SIGNALS, check_telemetry, is_sent, url_of
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.commands import ANSWER, script
from tests.doubles.server_process import serving
from tests.doubles.tools.web_servers import Answer, serve

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATHS = ("/v1/traces", "/v1/metrics")


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
    by: str, tmp_path: Path
) -> None:
    with serve(lambda seen: Answer()) as collector:
        flags = ["--otel-endpoint", collector.url] if by == "flag" else []
        environment = {"OTEL_SERVICE_NAME": "front"} | ({} if by == "flag" else {BASE: collector.url})
        with serving("--model", script(tmp_path, ANSWER), *flags, env=environment) as server:
            answer = httpx.post(f"{server.api}/responses", json={"input": "Hi"}, timeout=60)
            assert answer.status_code == 200, answer.text
    bodies = {path: [seen.body for seen in collector.seen if seen.path == path] for path in PATHS}
    traces = map(ExportTraceServiceRequest.FromString, bodies["/v1/traces"])
    metrics_sent = map(ExportMetricsServiceRequest.FromString, bodies["/v1/metrics"])
    traced = [each for request in traces for each in request.resource_spans]
    measured = [each for request in metrics_sent for each in request.resource_metrics]
    attributes = [attribute for each in (*traced, *measured) for attribute in each.resource.attributes]
    assert {own.value.string_value for own in attributes if own.key == "service.name"} == {"front"}
    spans = [span.name for each in traced for scope in each.scope_spans for span in scope.spans]
    assert sorted(spans) == ["POST /v1/responses", "chat scripted", "generate_content scripted"]
    metrics = {metric.name for each in measured for scope in each.scope_metrics for metric in scope.metrics}
    assert {"gen_ai.client.token.usage", "gen_ai.server.request.duration"} <= metrics
