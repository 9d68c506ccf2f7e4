"""Decides under which names the server may be used: a web page can give its own name this server's address.

To a browser, a name that a site resolves to this machine is that site (DNS rebinding), and its pages could
read every answer: any other `Host` gets 403 before anything runs. Only names that a site can own are a
danger. An address is none, nor is a name that public DNS cannot give to anybody.
"""

import re
import socket
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from gpt_oss_server.errors import ApiError, HostNotAllowed, InvalidHttp
from gpt_oss_server.http.answers import error_answer
from gpt_oss_server.settings import Settings
from tools.addresses import is_literal, is_of_this_machine

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{0,5})?")
# Reserved for private networks (RFC 6762, RFC 8375, ICANN 2024), as are names without a dot.
_PRIVATE = (".local", ".internal", ".home.arpa")


class Hosts:
    def __init__(self, settings: Settings) -> None:
        bound = settings.host.strip("[]").lower()
        names = {name.strip("[]").rstrip(".").lower() for name in settings.allow_host}
        self._any = "*" in names
        self._listens_locally = is_of_this_machine(bound)
        self._names = names | {bound}
        if not self._listens_locally:
            self._names.add(socket.gethostname().lower())

    def refusal(
        self, headers: Sequence[tuple[bytes, bytes]], http_version: str, reached: str = ""
    ) -> ApiError | None:
        """`reached` is the address of this machine at which the request arrived."""
        hosts = [value.decode("latin-1").strip() for name, value in headers if name == b"host"]
        if not hosts and http_version == "1.0":  # it has no such header, and no browser speaks it
            return None
        parts = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if parts is None:
            return InvalidHttp(
                "A request must have exactly one `Host` header, with the name or address of this server."
            )
        name = (parts[1] or parts[2]).rstrip(".").lower()
        if self._any or name == reached.lower() or self._allows(name):
            return None
        return HostNotAllowed(
            f"This server is not known as {name[:99]!r}. Start it with --allow-host {name[:99]} if it is, "
            "for example behind a reverse proxy, or use its address."
        )

    def _allows(self, name: str) -> bool:
        if name in self._names or is_of_this_machine(name):
            return True
        return not self._listens_locally and (is_literal(name) or "." not in name or name.endswith(_PRIVATE))


class HostGuard:
    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] in ("http", "websocket"):
            reached, _ = scope.get("server") or ("", None)
            refusal = self._hosts.refusal(scope["headers"], scope.get("http_version", ""), reached)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refuse(refusal, scope, receive, send)


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with an error body; a handshake, if the ASGI server can."""
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await error_answer(error)(scope, receive, send)
    else:
        await send({"type": "websocket.close"})  # this ASGI server can only answer 403
