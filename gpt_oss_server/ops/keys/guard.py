"""Refuses requests without a right key, before anything runs, and decides for whom the others run.

Takes requests over HTTP and handshakes of WebSockets. The key is a bearer token or in `X-Api-Key`. What a
probe or a browser needs before it can have a key is public: the server's state, and the files of its pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from gpt_oss_server.errors import InvalidApiKey
from gpt_oss_server.http.answers import error_answer
from gpt_oss_server.http.hosts import refuse_socket
from gpt_oss_server.ops.keys.access import serve_as
from gpt_oss_server.ops.keys.keyring import Keyring

_PUBLIC = frozenset({"/", "/health", "/ready", "/live", "/metrics", "/docs", "/openapi.json"})
_PUBLIC_FOLDERS = ("/web/", "/docs/")
_READS = ("GET", "HEAD")
_NO_KEY = (
    "This server needs an API key. Send it as `Authorization: Bearer KEY` or `X-Api-Key: KEY`; SDKs take "
    "it as api_key or from OPENAI_API_KEY."
)
_WRONG_KEY = "This API key is not one of this server's. Check it, or ask the operator of the server for one."


class KeyGuard:
    def __init__(self, app: ASGIApp, keys: Keyring) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _is_public(scope):
            await self._app(scope, receive, send)
            return
        key = key_in(scope["headers"])
        access = None if key is None else self._keys.find(key)
        if access is not None:
            serve_as(access)
            await self._app(scope, receive, send)
            return
        refusal = InvalidApiKey(_NO_KEY if key is None else _WRONG_KEY)
        if scope["type"] == "http":
            await error_answer(refusal)(scope, receive, send)
        else:
            await refuse_socket(refusal, scope, receive, send)


def key_in(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key that a client sent; a bearer token comes before the other header."""
    other = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer" and token.strip():
                return token.strip().decode("utf-8", "surrogateescape")
        elif name == b"x-api-key" and value.strip():
            other = value.strip().decode("utf-8", "surrogateescape")
    return other


def _is_public(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in _READS:
        return False
    path: str = scope["path"]
    return path in _PUBLIC or path.startswith(_PUBLIC_FOLDERS)
