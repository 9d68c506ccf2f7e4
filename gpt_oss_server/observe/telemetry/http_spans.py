"""The span of a request of the API, which continues the trace of the client's `traceparent`.

A WebSocket, which may stay open for hours, has none: its turns continue the trace of its handshake.
"""

from __future__ import annotations

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.observe.telemetry.run_spans import fail

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
        within = _context_of(scope)
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
                _begin(span, message["status"])
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


def _context_of(scope: Scope) -> context.Context:
    carried = (header for header in scope["headers"] if header[0] in _CARRIED)
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in carried}
    return TraceContextTextMapPropagator().extract(carrier)


def _begin(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_FAILED:
        fail(span, str(status))
