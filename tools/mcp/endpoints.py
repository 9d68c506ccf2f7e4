"""Where an MCP server is, and the credentials for it. No repr reveals a header's value, a token or a URL.

It must not import MCP's packages: every request with a tool of type `mcp` passes here, on the event loop, and
their first import takes more than a second.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2

_SENSITIVE = re.compile(r"auth|key|token|secret|cookie|password|session|signature", re.IGNORECASE)
_URL_CHARS = 4_096
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

# The transport sets these itself; a client that set them could turn a request into another one.
_NOT_FOR_CLIENTS = frozenset({
    "accept", "accept-encoding", "connection", "content-length", "content-type", "expect", "host",
    "keep-alive", "last-event-id", "mcp-protocol-version", "mcp-session-id", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
SECRET_FIELDS = ("headers", "authorization")  # of a request's tool


class McpSettingsError(ValueError):
    """The settings of an MCP server are wrong. The message holds no secret; `param` is the wrong field."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Credentials:
    """Headers for one server. They can only be sent: not printed, compared, copied or stored."""

    __slots__ = ("_headers", "_secrets")

    def __init__(self, headers: Mapping[str, str] | None = None, authorization: str | None = None) -> None:
        pairs = (headers or {}).items()
        self._headers = {name: checked_value(checked_name(name), value) for name, value in pairs}
        if authorization is not None:
            token = checked_value("authorization", authorization.strip(), param="authorization")
            self._headers = {n: v for n, v in self._headers.items() if n.lower() != "authorization"}
            self._headers["Authorization"] = token if " " in token else f"Bearer {token}"
        self._secrets = _secret_words(self._headers)

    def for_sending(self) -> dict[str, str]:
        return dict(self._headers)

    def redact(self, text: str) -> str:
        """Removes these secrets, which a server may have written into its responses, from the text."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    def __repr__(self) -> str:
        return f"Credentials({len(self._headers)} headers, hidden)"

    def __reduce__(self) -> str:
        raise TypeError("credentials must not be stored")


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server over HTTP. `trusted` marks URLs that the operator wrote: their addresses are not checked."""

    url: str = field(repr=False)
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class StdioEndpoint:
    """An operator's command that speaks MCP on its standard input and output."""

    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)


Endpoint = HttpEndpoint | StdioEndpoint


def http_endpoint(
    url: str, *, trusted: bool = False, param: str = "server_url"
) -> tuple[HttpEndpoint, str | None]:
    """The endpoint of a URL, and the authorization that it held as `user:password@`, if any."""
    try:
        parts = urlsplit(url)
        port = parts.port
        read = httpx2.URL(url)  # the HTTP client's parser must accept the URL too
    except (ValueError, httpx2.InvalidURL) as error:
        raise McpSettingsError("The URL of the MCP server is not a URL.", param=param) from error
    if parts.scheme not in ("http", "https") or not read.host or port == 0:
        form = "http:// or https:// and a host"
        raise McpSettingsError(f"The URL of an MCP server must start with {form}.", param=param)
    if len(url) > _URL_CHARS or " " in url or "\\" in url or not url.isprintable():
        raise McpSettingsError("The URL of the MCP server is too long or has odd characters.", param=param)
    user, at, host = parts.netloc.rpartition("@")
    bare = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    basic = base64.b64encode(unquote(user).encode()).decode() if at else None
    return HttpEndpoint(bare, trusted), f"Basic {basic}" if basic else None


def public_form(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A request's tool as it may be stored and echoed: without secrets, also those of its URL."""
    shown = {name: value for name, value in tool.items() if name not in SECRET_FIELDS}
    url = shown.get("server_url")
    if isinstance(url, str):
        try:
            shown["server_url"] = http_endpoint(url)[0].url
        except McpSettingsError:
            del shown["server_url"]  # an unreadable URL may hold anything
    return shown


def checked_name(name: object) -> str:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise McpSettingsError("A header's name has characters that are not allowed.", param="headers")
    if name.lower() in _NOT_FOR_CLIENTS:
        raise McpSettingsError(f"The header {name!r} cannot be set: the transport sets it.", param="headers")
    return name


def checked_value(name: str, value: object, *, param: str = "headers") -> str:
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        message = f"The value of the header {name!r} is not text that a header can hold."
        raise McpSettingsError(message, param=param)
    return value


def _secret_words(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets to redact, longest first, because redacting a part would hide the whole."""
    words: set[str] = set()
    for name, value in headers.items():
        parts = {value, *value.split(" ")} if name.lower() == "authorization" else {value}
        shortest = 6 if _SENSITIVE.search(name) else 16
        words |= {part for part in parts if len(part) >= shortest and part.lower() not in ("bearer", "basic")}
    return tuple(sorted(words, key=len, reverse=True))
