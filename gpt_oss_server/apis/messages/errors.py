"""Errors in the form of Anthropic's APIs, for requests that speak it.

Takes the server's answers. Every layer of the server may refuse a request, so one layer around them all
changes the body of each refusal, and names the request in the header that Anthropic's clients read.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.errors import ApiError

VERSION = "anthropic-version"
_OVERLOADED = 529
_ID = "request-id"
_PATH = "/v1/messages"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    _OVERLOADED: "overloaded_error",
}
# Clients that would leave a conversation to the server then send all of its messages.
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
# Clients shorten the conversation when they read these words and numbers.
_TOO_LONG = re.compile(r"maximum context length is (\d+) tokens\. The prompt has (\d+) tokens")


def error_body(error: ApiError, request_id: str | None = None) -> dict[str, Any]:
    return _body(error.body()["error"], error.status, request_id)


def _body(error: Mapping[str, Any], status: int, request_id: str | None) -> dict[str, Any]:
    message = str(error.get("message"))
    if error.get("code") == "context_length_exceeded":
        counts = _TOO_LONG.search(message)
        numbers = f"{counts[2]} tokens > {counts[1]} maximum. " if counts else ""
        message = f"prompt is too long: {numbers}{message}"
    kind = _TYPES.get(_status(error, status), "api_error")
    named = {} if request_id is None else {"request_id": request_id}
    details = {"details": _NO_THREADS} if error.get("param") == "thread" else {}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, **named}


def _status(error: Mapping[str, Any], status: int) -> int:
    return _OVERLOADED if error.get("code") == "server_is_overloaded" else status


def speaks_anthropic(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == _PATH or path.startswith(f"{_PATH}/") or VERSION in Headers(scope=scope)


class ErrorsInOwnForm:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not speaks_anthropic(scope):
            await self._app(scope, receive, send)
            return
        start: Message = {}
        parts: list[bytes] = []

        async def translated(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[_ID] = headers.get("x-request-id", "")
                if message["status"] >= 400:
                    start = message
                    return
            elif start:
                parts.append(message.get("body", b""))
                if message.get("more_body"):
                    return
                await _send_error(start, b"".join(parts), send)
                return
            await send(message)

        await self._app(scope, receive, translated)


async def _send_error(start: Message, body: bytes, send: Send) -> None:
    headers = MutableHeaders(scope=start)
    try:
        error = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError):  # no refusal of this server's: an empty body, for instance
        error = None
    if isinstance(error, dict):
        own = _body(error, start["status"], headers.get(_ID))
        body, start["status"] = json.dumps(own).encode(), _status(error, start["status"])
        headers["content-length"] = str(len(body))
    await send(start)
    await send({"type": "http.response.body", "body": body})
