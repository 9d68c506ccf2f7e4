"""Where traces go: the flag, the standard variables, and what is wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gpt_oss_server.ops.tracing.tracing import tracing_of
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.server_process import serving

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Collector(HTTPServer):
    """Takes traces by OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ExportTraceServiceRequest]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers["content-length"]))
                self.requests.append((handler.path, ExportTraceServiceRequest.FromString(body)))
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


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert tracing_of(Settings(), environment={}) is None
    assert (
        tracing_of(Settings(), environment={BASE: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"})
        is None
    )
    assert (
        tracing_of(Settings(), environment={BASE: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"})
        is None
    )


@pytest.mark.parametrize(
    ("settings", "environment", "message"),
    [
        (Settings(otel_endpoint="collector:4318"), {}, "--otel-endpoint must be a URL"),
        (Settings(otel_endpoint="grpc://collector:4317"), {}, "4318"),
        (Settings(), {BASE: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf alone"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    settings: Settings, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        tracing_of(settings, environment=environment)


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_collector_gets_the_spans_when_the_server_stops_at_the_latest(
    by: str, collector: Collector, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": ["<|channel|>final<|message|>Hello!<|return|>"], "loop": True}))
    flags = ["--python", "off", *(["--otel-endpoint", collector.url] if by == "flag" else [])]
    environment = {"OTEL_SERVICE_NAME": "front"} | ({} if by == "flag" else {BASE: collector.url})
    with serving("--model", f"scripted:{script}", *flags, env=environment) as server:
        answer = httpx.post(f"{server.api}/responses", json={"input": "Hi"}, timeout=60)
        assert answer.status_code == 200, answer.text
    paths = {path for path, _ in collector.requests}
    resources = [each for _, request in collector.requests for each in request.resource_spans]
    spans = [span.name for each in resources for scope in each.scope_spans for span in scope.spans]
    services = {
        a.value.string_value
        for each in resources
        for a in each.resource.attributes
        if a.key == "service.name"
    }
    assert (paths, services) == ({"/v1/traces"}, {"front"})
    assert sorted(spans) == ["POST /v1/responses", "chat scripted", "generate_content scripted"]


def test_without_its_packages_the_extra_is_named() -> None:
    hides = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('opentelemetry.sdk') or name.startswith('opentelemetry.exporter'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from gpt_oss_server.settings import Settings\n"
        "from gpt_oss_server.ops.tracing.tracing import tracing_of\n"
        "tracing_of(Settings(otel_endpoint='http://127.0.0.1:4318'))\n"
    )
    done = subprocess.run([sys.executable, "-c", hides], capture_output=True, text=True)
    assert "pip install 'gpt-oss-server[otel]'" in done.stderr
