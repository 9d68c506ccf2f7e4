"""The outermost layer: adds `x-request-id` to every answer and turns uncaught exceptions into 500s.

It makes the request's caller, and logs the beginning and the end of each request, and an uncaught exception
with its traceback, which the client does not see. It ignores a slash at the end of an API's path.
"""

import asyncio
import itertools
import logging
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.caller.caller import SESSION, Caller, is_label
from gpt_oss_server.caller.record import RECORD, RequestRecord
from gpt_oss_server.errors import ApiError

HEADER = "x-request-id"
_STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_PRINTABLE = re.compile(rb"[\x21-\x7e]{1,200}\Z")  # anything else could break the answer's header
_SWITCHING = 101  # the status of an accepted WebSocket
_log = logging.getLogger(__name__)


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def _one_spelling(scope: Scope) -> Scope:
    """Maps `/v1/responses/` to `/v1/responses`: some clients join their base URL that way.

    All other paths have one spelling, so that a proxy which denies one denies it whole.
    """
    path, raw = scope["path"], scope.get("raw_path")
    if path.startswith("/v1/"):
        return {**scope, "path": path.rstrip("/")}
    return scope if raw is None or raw == path.encode() else {**scope, "path": raw.decode("latin-1")}


class EdgeObserver(Protocol):
    """Learns of every request and every WebSocket. Nothing that it does may fail them."""

    def began(self, scope: Scope) -> None: ...

    def ended(self, scope: Scope, status: int, seconds: float) -> None:
        """After the body. The status is 0 where no answer began: the client left, or the server stops."""
        ...


class Edge:
    def __init__(self, app: ASGIApp, observers: Sequence[EdgeObserver] = ()) -> None:
        self._app = app
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope = _one_spelling(scope)
        began = time.monotonic()
        given = next((value for name, value in scope["headers"] if name == HEADER.encode()), b"")
        chosen = given.decode("ascii") if _PRINTABLE.match(given) else ""
        request_id = chosen or new_request_id()
        make_caller(scope, HEADER, request_id, chosen)
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        client, _ = scope.get("client") or ("unknown", None)
        record = RequestRecord(request_id, method, scope["path"], scope.setdefault("state", {}), client)
        RECORD.set(record)
        record.arrived()
        for observer in self._observers:
            observer.began(scope)
        try:
            await self._answer(scope, receive, send, record)
        finally:
            record.ended()
            for observer in self._observers:
                observer.ended(scope, record.status, time.monotonic() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        request_id, started = record.id, False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] in _STARTS:
                started = True
                MutableHeaders(scope=message)[HEADER] = request_id
                record.answered(message.get("status", _SWITCHING))
            elif record.refused:
                record.read_error(message.get("body", b""))
            await send(message)

        if scope["type"] == "websocket":
            await self._app(scope, receive, send_with_id)
            return
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            record.left()
            _log.debug("The client of %s disconnected while it sent its request.", request_id)
        except asyncio.CancelledError:
            # Only the server's shutdown cancels requests; the task ends here in any case.
            record.cut()
            _log.warning("%s %s was cut off: the server is stopping.", scope["method"], scope["path"])
        except Exception:
            _log.exception("%s %s failed (%s).", scope["method"], scope["path"], request_id)
            if started:
                raise  # part of the answer is sent; the server closes the connection
            body = ApiError(f"The server failed; its log says why, under {request_id}.").body()
            await JSONResponse(body, status_code=ApiError.status)(scope, receive, send_with_id)


_CONNECTION, _CALLER = "connection", "caller"  # in the state of a scope
_SENT_ALONG = {name.encode(): name for name in (SESSION, "traceparent", "tracestate")}
_numbers = itertools.count(1)


def new_connection() -> str:
    """A name that no other connection has had. Addresses and ports are used again by others."""
    return f"connection {next(_numbers)}"


def set_connection(scope: Scope, connection: str) -> None:
    scope["state"][_CONNECTION] = connection


def make_caller(scope: Scope, header: str, request_id: str, chosen: str = "") -> Caller:
    """The caller of a request that has just arrived, perhaps from this process itself."""
    labels = {header: request_id}
    for name, value in scope["headers"]:
        if name in _SENT_ALONG and is_label(text := value.decode("latin-1")):
            labels[_SENT_ALONG[name]] = text
    own = scope.get("state", {}).get(_CALLER) or Caller(client=_connection(scope))
    labels = {**own.labels, **labels}
    caller = replace(own, labels=labels, chosen_id=chosen, arrived=time.monotonic())
    set_caller(scope, caller)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    scope.setdefault("state", {})[_CALLER] = caller


def caller_of(scope: Scope) -> Caller:
    caller: Any = scope["state"][_CALLER]
    assert isinstance(caller, Caller)
    return caller


def _connection(scope: Scope) -> str:
    """Servers other than this project's tell only the client's address."""
    known = scope.get("state", {}).get(_CONNECTION)
    return str(known or ":".join(map(str, scope.get("client") or ("unknown",))))
