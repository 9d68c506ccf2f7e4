"""The spans of a turn with two tools, their attributes, and the trace that goes in and out."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from gpt_oss_server.settings import Settings
from tests.contracts.remote_contract import connected
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.engines.vllm_double import VllmDouble
from tests.doubles.observing.figures import Spans, attributes
from tests.doubles.serving import leave_in_the_middle, scripted, serving
from tests.doubles.tools.echo_server import ServerThread, app_of, make_server
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


class Recorded:
    """An ASGI application, and the JSON that was sent to it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.bodies: list[Any] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def received() -> Any:
            message = await receive()
            if message.get("body"):
                self.bodies.append(json.loads(message["body"]))
            return message

        await self._app(scope, received if scope["type"] == "http" else receive, send)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [body["params"] for body in self.bodies if body.get("method") == "tools/call"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nThe secret-page.\n")
    return tmp_path


@contextmanager
def with_tools(folder: Path, *turns: str) -> Iterator[tuple[Api, Spans, Recorded]]:
    mcp, spans = Recorded(app_of(make_server(), "http")), Spans()
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
    assert mcp.calls[0]["_meta"]["traceparent"] == f"00-{TRACE}-{call.span_id:016x}-01"


async def test_no_text_leaks(folder: Path) -> None:
    """Not of the client, the model, a tool, or an error."""
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
    ("path", "body", "name"),
    [
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "chat scripted"),
        ("/completions", {"prompt": "Hi"}, "text_completion scripted"),
    ],
)
async def test_other_apis_have_one_span_for_all_choices(path: str, body: dict[str, Any], name: str) -> None:
    spans = Spans()
    api = Api(scripted(ANSWER, loop=True), tracer_provider=spans.provider)
    usage = (await api.post(path, **body, n=2))["usage"]
    turn = attributes(spans.one(name))
    assert turn["gen_ai.response.finish_reasons"] == ("stop", "stop")
    assert turn["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert spans.tree()[name] == ["generate_content scripted"] * 2


async def test_a_client_that_leaves_ends_the_spans() -> None:
    spans = Spans()
    engine = scripted(ANSWER, loop=True, tokens_per_second=3)
    with serving(engine, tracer_provider=spans.provider) as url:
        await leave_in_the_middle(f"{url}/responses", {"input": "Hi", "stream": True}, engine)
        await until(lambda: len(spans.ended) == 3)
    assert attributes(spans.one("chat scripted"))["gen_ai.response.finish_reasons"] == ("disconnected",)


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


async def test_a_failure_is_its_code() -> None:
    spans = Spans()
    api = Api(ReplayEngine([1, 2, 3, 4], fails_after=2), tracer_provider=spans.provider)
    await api.refused("/completions", prompt="Hi", max_tokens=8)
    generation = spans.one("generate_content replay")
    assert attributes(generation)["error.type"] == "EngineFailed"
    assert attributes(spans.one("text_completion replay"))["error.type"] == "server_error"
    assert not generation.status.is_ok
    assert not generation.events, "an exception's text may quote a client"
