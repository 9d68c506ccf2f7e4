"""Serves one of this project's tools over MCP: `gpt-oss-server mcp browser|python`.

An MCP server has one tool for each function (one with a `code` argument for a tool that is called by its bare
name), and each session of MCP is a session of the tool. Images stay images: those in `details["images"]`
(`mime_type`, `data`) and in `details["outputs"]` (`url`, a data URL). It must not know any particular tool.
"""

import asyncio
import json
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tools.mcp.calls import own_result
from tools.sessions import SessionLimits
from tools.tool import Declaration, Function, Tool
from tools.toolbox import Offer, Toolbox

_log = logging.getLogger(__name__)
_SESSIONS = SessionLimits(idle=1800.0)
_TIMEOUT = 300.0
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)
_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"  # headers
_CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


class ServedTool:
    """The MCP server of a tool, with its sessions. It must be closed."""

    def __init__(self, tool: Tool, *, timeout: float = _TIMEOUT) -> None:
        self._declaration = tool.declaration
        self._toolbox = Toolbox([Offer(tool, timeout=timeout, sessions=_SESSIONS)])
        self.server: Server[Any] = Server(
            self._declaration.namespace,
            instructions=self._declaration.description,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    @property
    def sessions(self) -> int:
        return sum(self._toolbox.sessions.values())

    def app(self, host: str = "127.0.0.1") -> ASGIApp:
        """An ASGI app at /mcp. A loopback host accepts only loopback names, against DNS rebinding."""
        return HandshakeOnly(self.server.streamable_http_app(host=host), self._toolbox.forget)

    async def close(self) -> None:
        await self._toolbox.close()

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_declared(self._declaration))

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        recipient, arguments = _recipient(self._declaration, params.name, params.arguments or {})
        output = await self._toolbox.run(_conversation(context), recipient, arguments)
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=output.text)]
        content.extend(_pictures(output.details))
        own = own_result(output)
        return types.CallToolResult(content=content, structured_content=own, is_error=output.failed)


class HandshakeOnly:
    """Admits only versions with sessions, which a refusal lists, as a tool has state. Reports their ends."""

    def __init__(self, app: ASGIApp, on_session_end: Callable[[str], None]) -> None:
        self._app = app
        self._on_session_end = on_session_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        version = headers.get(_VERSION)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await _refusal(version)(scope, receive, send)
            return
        await self._app(scope, receive, send)
        if scope["method"] == "DELETE" and _SESSION in headers:
            self._on_session_end(headers[_SESSION])


def _refusal(version: str) -> Response:
    error = {
        "code": types.UNSUPPORTED_PROTOCOL_VERSION,
        "message": "These tools keep state in sessions: connect with the initialize handshake.",
        "data": {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version[:40]},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, status_code=400, media_type="application/json")


def _conversation(context: ServerRequestContext[Any]) -> str:
    """Over HTTP, the session's id, which its transport has checked; a pipe is one conversation."""
    headers = getattr(context.request, "headers", None)
    return str(headers.get(_SESSION, "")) if headers is not None else "stdio"


def _declared(declaration: Declaration) -> list[types.Tool]:
    bare = Function(declaration.namespace, declaration.description, _CODE)
    nothing = {"type": "object", "properties": {}}
    return [
        types.Tool(
            name=function.name,
            description=function.description,
            input_schema=dict(function.parameters or nothing),
        )
        for function in declaration.functions or (bare,)
    ]


def _recipient(declaration: Declaration, name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    if declaration.functions:
        return f"{declaration.namespace}.{name}", json.dumps(dict(arguments), ensure_ascii=False)
    if name != declaration.namespace:
        return f"{declaration.namespace}.{name}", ""
    code = arguments.get("code")
    return name, code if isinstance(code, str) else json.dumps(dict(arguments), ensure_ascii=False)


def _pictures(details: Mapping[str, Any]) -> Iterator[types.ImageContent]:
    for image in details.get("images") or ():
        yield types.ImageContent(type="image", mime_type=str(image["mime_type"]), data=str(image["data"]))
    for output in details.get("outputs") or ():
        picture = _DATA_URL.fullmatch(str(output.get("url", ""))) if isinstance(output, Mapping) else None
        if picture is not None:
            yield types.ImageContent(type="image", mime_type=picture[1], data=picture[2])


async def serve_stdio(tool: Tool) -> None:
    """Serves until the input ends or a signal arrives."""
    served = ServedTool(tool)
    _leave_at_signals(served)
    try:
        async with stdio_server() as (incoming, outgoing):
            await served.server.run(incoming, outgoing, served.server.create_initialization_options())
    finally:
        await served.close()


def _leave_at_signals(served: ServedTool) -> None:
    """Exits the process at a signal; the thread that waits for input cannot be stopped in any other way."""
    loop = asyncio.get_running_loop()
    leaving: set[asyncio.Task[None]] = set()  # the loop itself holds no task

    async def leave(status: int) -> None:
        try:
            await served.close()
        finally:
            os._exit(status)

    def start_to_leave(status: int) -> None:
        leaving.add(loop.create_task(leave(status)))

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows does not support signal handlers here
            loop.add_signal_handler(number, start_to_leave, 128 + number)


async def serve_http(tool: Tool, host: str, port: int, listener: socket.socket) -> None:
    """Serves until a signal arrives. The `listener` is already bound to the host."""
    if host not in ("127.0.0.1", "localhost", "::1"):
        _log.warning("Anyone who can reach %s:%d can call %s", host, port, tool.declaration.namespace)
    served = ServedTool(tool)
    # uvicorn's h11 keeps the body of a request that offers HTTP/2, as Java's client does; the other does not.
    options: dict[str, Any] = {"http": "h11", "log_level": "info", "log_config": None}
    config = uvicorn.Config(served.app(host), host=host, port=port, **options)
    try:
        await uvicorn.Server(config).serve([listener])
    finally:
        await served.close()
