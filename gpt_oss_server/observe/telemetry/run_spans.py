"""The spans of runs: one for each turn's run, within it one for each generation and each run of a tool.

Errors are their codes: their sentences may quote a client. While a tool runs, its span is the current one, so
that an MCP server learns of it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.observe.telemetry import conventions as names
from gpt_oss_server.runs.observed import ObservedRun
from gpt_oss_server.turns.watch import MeasuredSpan, Watch, WatchedTool

_GENERATION = "generate_content"
_REASONS = {"completed": "stop", "incomplete": "length", "failed": "error"}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")  # of a tool; a model may make up any text as its function


class RunSpans:
    """A `RunObserver`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[ObservedRun, Span] = {}

    def began(self, run: ObservedRun) -> None:
        operation = names.OPERATIONS.get(run.api, "chat")
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: operation,
            names.PROVIDER_NAME: names.PROVIDER,
            names.MODEL: run.model,
            "gen_ai.response.id": run.id,
            "gpt_oss.api": run.api,
        }
        if run.conversation is not None:
            attributes["gen_ai.conversation.id"] = run.conversation
        span = self._tracer.start_span(f"{operation} {run.model}", attributes=attributes)
        self._spans[run] = span
        run.watch = TurnSpans(self._tracer, span, run.model)

    def ended(self, run: ObservedRun) -> None:
        span, usage = self._spans.pop(run), run.usage()
        span.set_attributes(
            {
                "gen_ai.response.finish_reasons": [_REASONS.get(each, each) for each in run.statuses],
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.output_tokens": usage.output,
                "gen_ai.usage.cache_read.input_tokens": usage.cached,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
            }
        )
        if run.error is not None:
            fail(span, run.error.code or run.error.type)
        span.end()


class TurnSpans(Watch):
    """The watch of one run."""

    def __init__(self, tracer: Tracer, run: Span, model: str) -> None:
        self._tracer = tracer
        self._within = trace.set_span_in_context(run)
        self._model = model
        self._generations: dict[int, Span] = {}

    def began(self, span: MeasuredSpan) -> None:
        name, kind = f"{_GENERATION} {self._model}", SpanKind.CLIENT
        attributes = {names.PROVIDER_NAME: names.PROVIDER, names.MODEL: self._model}
        attributes[names.OPERATION] = _GENERATION
        started = self._tracer.start_span(name, self._within, kind=kind, attributes=attributes)
        self._generations[id(span)] = started
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(started))
        span.trace = carrier.get("traceparent", "")

    def ended(self, span: MeasuredSpan, error: BaseException | None) -> None:
        started = self._generations.pop(id(span))
        started.set_attributes(
            {
                "gen_ai.usage.input_tokens": span.prompt,
                "gen_ai.usage.output_tokens": span.sampled,
                "gen_ai.usage.cache_read.input_tokens": span.cached,
            }
        )
        if span.queued is not None:
            started.set_attribute("gpt_oss.queue_seconds", span.queued)
        if span.first is not None:
            started.set_attribute("gpt_oss.first_token_seconds", span.first - span.began)
        if isinstance(error, Exception):
            fail(started, type(error).__name__)
        started.end()

    @contextmanager
    def tool(self, recipient: str) -> Iterator[WatchedTool]:
        name = recipient if _NAME.match(recipient) else recipient.partition(".")[0][:128]
        attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name}
        attributes["gen_ai.tool.type"] = "extension"
        span = self._tracer.start_span(f"{names.EXECUTE_TOOL} {name}", self._within, attributes=attributes)
        token = context.attach(trace.set_span_in_context(span))
        watched = WatchedTool(recipient)
        try:
            yield watched
        except Exception as error:
            fail(span, type(error).__name__)
            raise
        finally:
            context.detach(token)
            if watched.failed:
                fail(span, "tool_failed")
            span.end()


def fail(span: Span, kind: str) -> None:
    """The span ends with an error of this kind, by the conventions."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))


_API = "/v1/"
_CARRIED = (b"traceparent", b"tracestate")
_SERVER_FAILED = 500


class HttpSpans:
    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not scope["path"].startswith(_API):
            await self._app(scope, receive, send)
            return
        carried = (header for header in scope["headers"] if header[0] in _CARRIED)
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in carried}
        within = TraceContextTextMapPropagator().extract(carrier)
        if scope["type"] == "websocket":
            token = context.attach(within)
            try:
                await self._app(scope, receive, send)
            finally:
                context.detach(token)
            return
        await self._answer(scope, receive, send, within)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, within: context.Context) -> None:
        method = scope["method"]
        attributes = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
        span = self._tracer.start_span(method, within, kind=SpanKind.SERVER, attributes=attributes)

        async def send_seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= _SERVER_FAILED:
                    fail(span, str(message["status"]))
            await send(message)

        token = context.attach(trace.set_span_in_context(span, within))
        try:
            await self._app(scope, receive, send_seen)
        except BaseException as error:
            fail(span, type(error).__name__)
            raise
        finally:
            context.detach(token)
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
            span.end()
