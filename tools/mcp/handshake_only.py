"""ASGI middleware for a server with sessions: admits only the protocol versions that have sessions.

Takes ASGI requests. Returns the app's responses, or, for a version without sessions, a refusal that lists the
versions with them, so that clients fall back. Reports each ended session to a callback. It must not know any
tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

SESSION_HEADER = "mcp-session-id"
_VERSION_HEADER = "mcp-protocol-version"


class HandshakeOnly:
    def __init__(self, app: ASGIApp, on_session_end: Callable[[str], None]) -> None:
        self._app = app
        self._on_session_end = on_session_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        version = headers.get(_VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await _refusal(version)(scope, receive, send)
            return
        await self._app(scope, receive, send)
        if scope["method"] == "DELETE" and SESSION_HEADER in headers:
            self._on_session_end(headers[SESSION_HEADER])


def _refusal(version: str) -> Response:
    error = {
        "code": UNSUPPORTED_PROTOCOL_VERSION,
        "message": "These tools keep state in sessions: connect with the initialize handshake.",
        "data": {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version[:40]},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, status_code=400, media_type="application/json")
