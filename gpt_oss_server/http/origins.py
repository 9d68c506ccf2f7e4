"""Which web pages may use the server: a browser lets any page send, and only `Origin` tells whose it is.

In: requests. Out: those of programs as they are; of pages that may, with what their browser wants to hear
(CORS); 403 for others, before anything is done. Pages that may are the server's own, those of this machine's
own servers and programs, and those of `--allow-origin`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gpt_oss_server.errors import OriginNotAllowed
from gpt_oss_server.settings import Settings
from tools.addresses import is_literal

# Of programs whose window is a page, such as editors: no web site can have one of these.
_OF_PROGRAMS = frozenset({"app", "capacitor", "file", "tauri", "vscode-file", "vscode-webview"})
_TOLD = ("x-request-id", "retry-after", "x-should-retry")  # the headers of ours that a page may read


class Origins:
    def __init__(self, settings: Settings) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in settings.allow_origin)
        self._all = "*" in self._allowed
        self._is_at_home = _is_of_this_machine(settings.host)

    def refusal(self, headers: Mapping[str, str]) -> OriginNotAllowed | None:
        origin = headers.get("origin")
        if origin is None or self.may_read(origin) or self._is_own(origin, headers.get("host", "")):
            return None
        return OriginNotAllowed(
            f"Pages of {origin[:99]!r} may not use this server: start it with --allow-origin for that, "
            "or connect from a program."
        )

    def may_read(self, origin: str) -> bool:
        """Whether pages of another site may read the answers."""
        if self._all or origin.lower() in self._allowed:
            return True
        scheme, host = _parts(origin)
        return scheme in _OF_PROGRAMS or (scheme in ("http", "https") and _is_of_this_machine(host))

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether it is a page of this server.

        A name in both headers proves nothing where the server is for this machine alone: a site can have its
        name lead here (DNS rebinding).
        """
        if origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return False
        return not self._is_at_home or is_literal(_parts(origin)[1])


class OriginGuard:
    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        self._app = app
        self._origins = origins
        self._for_pages = _Answers(app, origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The route of WebSockets asks for itself: its refusals are sent in another way.
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        if "origin" not in headers:
            await self._app(scope, receive, send)
        elif refusal := self._origins.refusal(headers):
            await JSONResponse(refusal.body(), status_code=refusal.status)(scope, receive, send)
        else:
            await self._for_pages(scope, receive, send)


class _Answers(CORSMiddleware):
    """What a page's browser asks before it sends, and wants to hear before it shows."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        # Chrome asks whether a site may reach into a private network; whom --allow-origin names, may.
        super().__init__(
            app,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_TOLD,
            allow_private_network=True,
        )
        self._origins = origins

    def is_allowed_origin(self, origin: str) -> bool:
        return self._origins.may_read(origin)


def _parts(origin: str) -> tuple[str, str]:
    try:
        parts = urlsplit(origin)
        return parts.scheme.lower(), parts.hostname or ""
    except ValueError:  # of brackets that hold no address
        return "", ""


def _is_of_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_literal(host) and ipaddress.ip_address(host).is_loopback
