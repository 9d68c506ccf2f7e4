"""Decides which web pages may use the server: a browser lets any page send, and only `Origin` identifies it.

Answers to allowed pages have the headers that browsers require (CORS); others get 403 before anything runs.
Allowed are the server's own, those of servers and programs on this machine, and those of `--allow-origin`.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gpt_oss_server.errors import OriginNotAllowed
from gpt_oss_server.settings import Settings
from tools.addresses import is_literal, is_of_this_machine

# The schemes of programs whose window is a page, such as editors: no web site can have one of these.
_PROGRAM_SCHEMES = frozenset({"app", "capacitor", "file", "tauri", "vscode-file", "vscode-webview"})
_WRITTEN = re.compile(r"[a-z][a-z-]{0,20}://[A-Za-z0-9._:\[\]-]{1,200}")
_EXPOSED_HEADERS = (
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "www-authenticate",
    *(
        f"x-ratelimit-{which}-{of}"
        for which in ("limit", "remaining", "reset")
        for of in ("requests", "tokens")
    ),
    "x-should-retry",
    "x-ignored-fields",
)  # a page may read these


class Origins:
    def __init__(self, settings: Settings) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in settings.allow_origin)
        self._all = "*" in self._allowed
        self._listens_locally = is_of_this_machine(settings.host)
        self._names = {name.strip("[]").rstrip(".").lower() for name in settings.allow_host}

    def refusal(self, headers: Mapping[str, str]) -> OriginNotAllowed | None:
        origin = headers.get("origin")
        if origin is None or self.may_read(origin) or self._is_own(origin, headers.get("host", "")):
            return None
        return OriginNotAllowed(
            f"Pages of {origin[:99]!r} may not use this server. Start it with --allow-origin{_named(origin)} "
            "to allow them, or connect from a program."
        )

    def may_read(self, origin: str) -> bool:
        """Whether pages of another site may read the answers."""
        if self._all or origin.lower() in self._allowed:
            return True
        scheme, host = _parts(origin)
        return scheme in _PROGRAM_SCHEMES or (scheme in ("http", "https") and is_of_this_machine(host))

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether the origin is a page of this server.

        If the server listens only on this machine, equal names in both headers prove nothing: a site can
        resolve its name to this machine (DNS rebinding). The names of --allow-host are the operator's own.
        """
        if origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return False
        name = _parts(origin)[1]
        return not self._listens_locally or is_literal(name) or name in self._names


class OriginGuard(CORSMiddleware):
    """Also answers a browser's preflight requests, and adds the headers that let a page read an answer."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        # Chrome checks whether a site may access a private network; sites of --allow-origin may.
        super().__init__(
            app,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
            allow_private_network=True,
        )
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The route of WebSockets checks the origin itself: it sends refusals in another way.
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        if "origin" not in headers or _is_file_for_frame(scope, headers):
            await self.app(scope, receive, send)
        elif refusal := self._origins.refusal(headers):
            await JSONResponse(refusal.body(), status_code=refusal.status)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        return self._origins.may_read(origin)


def _is_file_for_frame(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether a frame without an origin, such as that of diagrams, reads a file of the playground."""
    reads = scope["type"] == "http" and scope["method"] == "GET"
    return reads and headers["origin"] == "null" and scope["path"].startswith("/web/")


def _named(origin: str) -> str:
    """The origin as a word of a command line; nothing if it is not written as a browser writes it."""
    return f" {origin}" if _WRITTEN.fullmatch(origin) else ""


def _parts(origin: str) -> tuple[str, str]:
    try:
        parts = urlsplit(origin)
        return parts.scheme.lower(), parts.hostname or ""
    except ValueError:  # brackets without an address
        return "", ""
