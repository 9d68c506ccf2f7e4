"""Telemetry: the spans of a turn, metrics by the GenAI conventions, and where both are sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gpt_oss_server.observe.telemetry.telemetry import SIGNALS, check_telemetry, is_sent, url_of
from gpt_oss_server.settings import Settings, SettingsError
from tests.contracts.remote_contract import connected
from tests.doubles import server_process
from tests.doubles.apis.api_client import APIS, Api
from tests.doubles.clients.running import Recorder
from tests.doubles.commands import ANSWER as HELLO
from tests.doubles.commands import script
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.engines.vllm_double import VllmDouble
from tests.doubles.observing.figures import Measured, Spans, attributes
from tests.doubles.serving import leave_in_the_middle, scripted, serving
from tests.doubles.tools.echo_server import ServerThread, app_of, make_server
from tests.doubles.tools.web_servers import Answer, serve
from tests.doubles.waiting import until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"harbour secret-query"}<|call|>'
ECHO = '<|channel|>commentary to=echoes.echo <|constrain|>json<|message|>{"text":"secret-argument"}<|call|>'
FAIL = '<|channel|>commentary to=echoes.fail <|constrain|>json<|message|>{"why":"secret-reason"}<|call|>'
THOUGHT = "<|channel|>analysis<|message|>secret-thought<|end|><|start|>assistant"
ANSWER = f"{THOUGHT}<|channel|>final<|message|>secret-answer<|return|>"
MCP = {"type": "mcp", "server_label": "echoes", "require_approval": "never"}
TOOLS: list[dict[str, Any]] = [{"type": "web_search"}, MCP]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nThe secret-page.\n")
    return tmp_path


@contextmanager
def with_tools(folder: Path, *turns: str) -> Iterator[tuple[Api, Spans, Recorder]]:
    mcp, spans = Recorder(), Spans()
    mcp.app = app_of(make_server(), "http")
    server = ServerThread(mcp)
    place = f"echoes=http://127.0.0.1:{server.port}/mcp"
    settings = Settings(browser=f"local:{folder}", python="off", mcp=(place,))
    try:
        yield Api(scripted(*turns), settings, tracer_provider=spans.provider), spans, mcp
    finally:
        server.stop()


async def test_a_turn_with_two_tools(folder: Path) -> None:
    with with_tools(folder, SEARCH, ECHO, ANSWER) as (api, spans, mcp):
        body = {"input": "Go.", "tools": TOOLS}
        answer = await api.client.post("/responses", json=body, headers=TRACEPARENT)
        await api.service.close()
    response = answer.json()
    assert response["status"] == "completed"
    generation = "generate_content scripted"
    below = [generation, "execute_tool browser.search", generation, "execute_tool echoes.echo", generation]
    http = "POST /v1/responses"
    assert spans.tree() == {PARENT: [http], http: ["chat scripted"], "chat scripted": below}
    assert {f"{span.context.trace_id:032x}" for span in spans.ended} == {TRACE}
    usage = response["usage"]
    turn = attributes(spans.one("chat scripted"))
    assert turn == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gpt-oss-server",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.id": response["id"],
        "gen_ai.conversation.id": response["id"],
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
        "gen_ai.usage.cache_read.input_tokens": usage["input_tokens_details"]["cached_tokens"],
        "gen_ai.usage.reasoning.output_tokens": usage["output_tokens_details"]["reasoning_tokens"],
        "gpt_oss.api": "responses",
    }
    of_generations = [attributes(span)["gen_ai.usage.output_tokens"] for span in spans.named(generation)]
    assert sum(int(str(each)) for each in of_generations) == usage["output_tokens"]
    of_http = attributes(spans.one(http))
    assert (of_http["http.response.status_code"], of_http["http.route"]) == (200, "/v1/responses")
    # The MCP server learns of the span of its call.
    call = spans.one("execute_tool echoes.echo").context
    [called] = [each.body["params"] for each in mcp.of("/mcp") if each.body["method"] == "tools/call"]
    assert called["_meta"]["traceparent"] == f"00-{TRACE}-{call.span_id:016x}-01"


async def test_no_text_leaks(folder: Path) -> None:
    with with_tools(folder, SEARCH, FAIL, ECHO, ANSWER) as (api, spans, _):
        body = {"input": "secret-input", "instructions": "secret-order", "metadata": {"a": "secret-metadata"}}
        response = await api.client.post("/responses", json={**body, "tools": TOOLS, "user": "secret-user"})
        assert all(word in response.text for word in ("secret-answer", "secret-thought", "secret-reason"))
        await api.client.post("/responses", json={"input": 5, "model": "tiny", "secret-field": 1})
        await api.client.post("/chat/completions", json={"messages": [{"role": "secret-role"}]})
        await api.service.close()
    assert len(spans.ended) > 9
    written = "\n".join(span.to_json() for span in spans.ended)
    assert "secret" not in written
    failed = attributes(spans.one("execute_tool echoes.fail"))
    assert failed["error.type"] == "tool_failed"


async def test_a_function_that_the_model_makes_up_is_no_name() -> None:
    odd = "<|channel|>analysis to=browser.secret:{a} code<|message|>{}<|call|>"
    spans = Spans()
    settings = Settings(python="off", browser="local:.")
    api = Api(scripted(odd, ANSWER), settings, tracer_provider=spans.provider)
    await api.create(tools=[{"type": "web_search"}])
    assert {span.name for span in spans.ended if "execute_tool" in span.name} <= {"execute_tool browser"}
    assert "secret" not in "\n".join(span.to_json() for span in spans.ended)
    await api.service.close()


@pytest.mark.parametrize(
    ("path", "name"), [("/chat/completions", "chat scripted"), ("/completions", "text_completion scripted")]
)
async def test_other_apis_have_one_span_for_all_choices(path: str, name: str) -> None:
    spans = Spans()
    api = Api(scripted(ANSWER, loop=True), tracer_provider=spans.provider)
    usage = (await api.post(path, **APIS[path], n=2))["usage"]
    turn = attributes(spans.one(name))
    assert turn["gen_ai.response.finish_reasons"] == ("stop", "stop")
    assert turn["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert spans.tree()[name] == ["generate_content scripted"] * 2


async def test_a_client_that_leaves_ends_the_spans_and_is_counted() -> None:
    spans, measured = Spans(), Measured()
    engine = scripted(ANSWER, loop=True, tokens_per_second=3)
    with serving(engine, tracer_provider=spans.provider, meter_provider=measured.provider) as url:
        await leave_in_the_middle(f"{url}/responses", {"input": "Hi", "stream": True}, engine)
        await until(lambda: len(spans.ended) == 3 and bool(measured.points(REQUEST)))
    assert attributes(spans.one("chat scripted"))["gen_ai.response.finish_reasons"] == ("disconnected",)
    assert measured.point(REQUEST, error_type="disconnected").count == 1
    assert measured.point(USAGE, gen_ai_token_type="input").sum > 0


async def test_the_spans_last_until_the_body_ends() -> None:
    spans = Spans()
    engine = scripted(ANSWER, tokens_per_second=20)
    with serving(engine, tracer_provider=spans.provider) as url:
        async with httpx.AsyncClient(timeout=60) as client:
            body = {"input": "Hi", "stream": True}
            async with client.stream("POST", f"{url}/responses", json=body) as answer:
                lines = answer.aiter_lines()
                async for line in lines:
                    if "delta" in line:
                        break
                assert not spans.ended
                async for _ in lines:
                    pass
        await until(lambda: len(spans.ended) == 3)


async def test_a_remote_engine_gets_the_generations_trace() -> None:
    spans = Spans()
    async with VllmDouble(context=4000) as double:
        engine = await connected(double, "vllm")
        api = Api(engine, tracer_provider=spans.provider)
        await api.client.post("/completions", json={"prompt": "Hi", "max_tokens": 3}, headers=TRACEPARENT)
        generation = spans.one("generate_content model").context
        sent = [headers["traceparent"] for headers in double.headers if "traceparent" in headers]
        assert sent == [f"00-{TRACE}-{generation.span_id:016x}-01"]


async def test_a_failure_is_its_code_and_has_no_times_of_tokens() -> None:
    spans, measured = Spans(), Measured()
    engine = ReplayEngine([1, 2, 3, 4], fails_after=2)
    api = Api(engine, tracer_provider=spans.provider, meter_provider=measured.provider)
    await api.refused("/completions", prompt="Hi", max_tokens=8)
    generation = spans.one("generate_content replay")
    assert attributes(generation)["error.type"] == "EngineFailed"
    assert attributes(spans.one("text_completion replay"))["error.type"] == "server_error"
    assert not generation.status.is_ok
    assert not generation.events, "an exception's text may quote a client"
    assert measured.point(REQUEST, error_type="server_error").count == 1
    assert not measured.points(FIRST)
    assert not measured.points(PER_TOKEN)


NOWHERE = '<|channel|>analysis to=browser.dance code<|message|>{"query":"harbour"}<|call|>'
SHORT = "<|channel|>final<|message|>The answer has some tokens.<|return|>"
REQUEST, OPERATION = "gen_ai.server.request.duration", "gen_ai.client.operation.duration"
FIRST, PER_TOKEN = "gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"
USAGE, TOOL = "gen_ai.client.token.usage", "gen_ai.execute_tool.duration"


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("names", ["own", "off"])
async def test_a_request_of_each_api(path: str, names: str) -> None:
    operation = "text_completion" if path == "/completions" else "chat"
    measured = Measured()
    api = Api(scripted(SHORT), Settings(metrics_names=names), meter_provider=measured.provider)
    usage = (await api.post(path, **APIS[path]))["usage"]
    expected = {"operation.name": operation, "provider.name": "gpt-oss-server", "request.model": "scripted"}
    assert measured.point(REQUEST).attributes == {f"gen_ai.{name}": expected[name] for name in expected}
    given, output = ("input", "output") if "input_tokens" in usage else ("prompt", "completion")
    assert measured.point(USAGE, gen_ai_token_type="input").sum == usage[f"{given}_tokens"]
    assert measured.point(USAGE, gen_ai_token_type="output").sum == usage[f"{output}_tokens"]
    whole, first, each = measured.point(REQUEST), measured.point(FIRST), measured.point(PER_TOKEN)
    assert whole.count == first.count == each.count == measured.point(OPERATION).count == 1
    assert 0 < first.sum <= whole.sum == measured.point(OPERATION).sum
    assert 0 <= each.sum * (usage[f"{output}_tokens"] - 1) <= whole.sum


async def test_the_names_units_and_buckets_are_those_of_the_conventions() -> None:
    measured = Measured()
    await Api(scripted(SHORT), meter_provider=measured.provider).create()
    units = {name: metric.unit for name, metric in measured.metrics.items()}
    assert units == {USAGE: "{token}", REQUEST: "s", OPERATION: "s", FIRST: "s", PER_TOKEN: "s"}
    assert measured.point(USAGE, gen_ai_token_type="input").explicit_bounds[-2:] == (16777216, 67108864)
    assert measured.point(REQUEST).explicit_bounds[:2] == (0.01, 0.02)
    assert measured.point(OPERATION).explicit_bounds[-1] == pytest.approx(81.92)


async def test_each_choice_has_a_first_token_and_the_request_counts_once() -> None:
    measured = Measured()
    api = Api(scripted(SHORT, loop=True), meter_provider=measured.provider)
    await api.post("/chat/completions", **APIS["/chat/completions"], n=3)
    assert measured.point(FIRST).count == measured.point(PER_TOKEN).count == 3
    assert measured.point(REQUEST).count == measured.point(USAGE, gen_ai_token_type="output").count == 1


async def test_tools_by_name_and_outcome(tmp_path: Path) -> None:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nIt is 40 metres deep.\n")
    measured = Measured()
    settings = Settings(browser=f"local:{tmp_path}", python="off")
    api = Api(scripted(SEARCH, NOWHERE, SHORT), settings, meter_provider=measured.provider)
    await api.create(tools=[{"type": "web_search"}])
    calls = measured.points(TOOL, gen_ai_tool_name="browser", gen_ai_operation_name="execute_tool")
    assert [dict(call.attributes or {}).get("error.type") for call in calls] == [None, "failed"]
    assert measured.point(FIRST).count == 1, "one turn, however many generations"
    assert measured.point(PER_TOKEN).count == 3
    assert "secret" not in str(measured.metrics)


async def test_a_client_cannot_make_up_series() -> None:
    measured = Measured()
    settings = Settings(served_model_name=("*", "alias"))
    api = Api(scripted(SHORT, loop=True), settings, meter_provider=measured.provider)
    for model in ("made-up-1", "made-up-2", "alias", "scripted"):
        await api.create(model=model)
    models = {str((point.attributes or {})["gen_ai.request.model"]) for point in measured.points(REQUEST)}
    assert models == {"scripted"}


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
        with server_process.serving("--model", script(tmp_path, HELLO), *flags, env=environment) as server:
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
