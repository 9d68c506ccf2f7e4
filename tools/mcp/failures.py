"""Failures of MCP servers as sentences that a model and a person can read.

An `McpFailure` never contains foreign texts that may repeat a request (a URL's query, headers), but may
contain the server's own error message, from which the caller removes secrets.
"""

from collections.abc import Iterator

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST
from pydantic import ValidationError

from tools.addresses import AddressRefused
from tools.mcp.http import AnswerTooLarge
from tools.tool import ToolUnavailable

_MESSAGE_CHARS = 2_000
# Servers choose codes freely; the package uses one for its own errors, whose messages start like this.
_LOST = ("Connection closed", "SSE stream ")
_SERVERS_OWN = -32000
# The package's own errors, as which it reports answers that it cannot read.
_NOT_MCP = (
    "Failed to parse JSON response: ",
    "Failed to parse SSE message: ",
    "Unexpected content type: ",
    "server answered a request with 202",
)
_NO_PROTOCOL = "answered with something that is not MCP."
_OTHER_VERSION = "Unsupported protocol version"
# With status 404, a server that has forgotten a session uses one of these codes.
_FORGOTTEN = frozenset({INVALID_REQUEST, _SERVERS_OWN, -32001})


class McpFailure(ToolUnavailable):
    """A listing or a call failed. `lost`: the connection is lost too, and the next call needs another one.

    `gone`: the server had forgotten this connection before it read the call, so the call can be repeated.
    """

    def __init__(self, sentence: str, *, lost: bool, gone: bool = False) -> None:
        super().__init__(sentence)
        self.lost = lost
        self.gone = gone


def causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, at any depth."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    else:
        yield error


def explain(error: BaseException, label: str, *, status: int | None = None) -> McpFailure:
    """The failure for an exception. `status` is the last HTTP status, if there was one."""
    errors = list(causes(error))
    server = f"The MCP server {label!r}"
    for cause in errors:
        match cause:
            case McpFailure():
                return cause
            case AddressRefused():
                return McpFailure(f"{server} may not be reached: {cause}", lost=True)
            case AnswerTooLarge():
                return McpFailure(f"{server} answered with more data than the limit allows.", lost=True)
    if status in (401, 403):
        message = f"{server} refused the request with status {status}: its authorization is missing or wrong."
        return McpFailure(message, lost=True)
    for cause in errors:
        if isinstance(cause, MCPError):
            return _protocol_error(cause, server, status)
    return McpFailure(f"{server} {_transport_error(errors)}", lost=True)


def undelivered(label: str, status: int | None) -> McpFailure:
    """The failure for a message that the server refused with a status and no further answer."""
    server = f"The MCP server {label!r}"
    if status in (401, 403):
        return explain(ConnectionError(), label, status=status)
    if status == 404:
        return McpFailure(f"{server} ended the session.", lost=True, gone=True)
    return McpFailure(f"{server} answered with status {status}.", lost=True)


def _protocol_error(error: MCPError, server: str, status: int | None) -> McpFailure:
    if error.code == CONNECTION_CLOSED and error.message.startswith(_LOST):
        return McpFailure(f"{server} closed the connection before it answered.", lost=True)
    if _forgot_the_session(error, status):
        return McpFailure(f"{server} ended the session.", lost=True, gone=True)
    if (status or 0) >= 400 and error.message in ("Not Found", "Server returned an error response"):
        return McpFailure(f"{server} answered with status {status}.", lost=True)
    if error.message.startswith(_NOT_MCP):
        return McpFailure(f"{server} {_NO_PROTOCOL}", lost=True)
    message = " ".join(error.message.split())[:_MESSAGE_CHARS]
    return McpFailure(f"{server} answered with an error: {message or error.code}", lost=False)


def _forgot_the_session(error: MCPError, status: int | None) -> bool:
    """404 is the protocol's status; servers modelled on the TypeScript package's examples use 400."""
    if error.code == INVALID_REQUEST and error.message == "Session terminated":
        return True
    if status == 404:
        return error.code in _FORGOTTEN
    message = error.message.lower()
    about_session = "session" in message or "not initialized" in message
    return status == 400 and error.code == _SERVERS_OWN and about_session


def _transport_error(errors: list[BaseException]) -> str:
    for cause in errors:
        match cause:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return "cannot be connected to."
            case httpx2.TimeoutException() | TimeoutError():
                return "did not answer in time."
            case httpx2.HTTPStatusError():
                return f"answered with status {cause.response.status_code}."
            case httpx2.SSEError():
                return "answered with an event stream that is unreadable or too large."
            case ValidationError():
                return _NO_PROTOCOL
            case RuntimeError() if str(cause).startswith(_OTHER_VERSION):
                return "speaks a version of MCP that this server does not."
            case FileNotFoundError() | PermissionError():
                return "cannot be started: its command cannot be run."
            case httpx2.TransportError() | OSError():
                return "broke off the connection."
    return "failed in a way that its client does not recognise."
