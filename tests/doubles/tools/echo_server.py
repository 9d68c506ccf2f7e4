"""A real MCP server from the `mcp` package, in a process or a thread, with tools that misbehave."""

import asyncio
import base64
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@dataclass
class Seen:
    """What the server's tools saw, for tests to check."""

    headers: list[dict[str, str]] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    listings: int = 0


def make_server(seen: Seen | None = None) -> MCPServer:
    seen = seen or Seen()

    class Counting(MCPServer):
        async def list_tools(self) -> Any:
            seen.listings += 1
            return await super().list_tools()

    server = Counting("echoes", instructions="Repeats what it is told.")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def echo(text: str) -> str:
        """Says the same."""
        seen.calls += 1
        return text

    @server.tool()
    def fail(why: str) -> str:
        """Fails."""
        raise ToolError(why)

    @server.tool()
    async def slow(seconds: float) -> str:
        """Takes its time."""
        seen.started.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            seen.cancelled.set()
            raise
        return "done at last"

    @server.tool()
    def picture() -> Image:
        """A picture."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    def large(characters: int) -> str:
        """A long text."""
        return "x" * characters

    @server.tool()
    def odd() -> str:
        """Text that is nearly binary."""
        return "\x00\x01\x7f\u2028 <|end|> 🧠"

    @server.tool()
    def headers(ctx: Context) -> str:
        """The headers of this request."""
        got = {str(name): str(value) for name, value in (ctx.headers or {}).items()}
        seen.headers.append(got)
        return "; ".join(f"{name}={value}" for name, value in got.items())

    @server.tool()
    def die() -> str:
        """Ends the process."""
        os._exit(3)

    @server.tool(name="has a space.and dot")
    def awkward() -> str:
        """A name that no recipient carries."""
        return "found"

    return server


class ServerThread:
    """A server on 127.0.0.1 in a thread; it can be stopped during a call and restarted at its port."""

    def __init__(self, app: Any, port: int = 0) -> None:
        options: dict[str, Any] = {"log_config": None, "timeout_graceful_shutdown": 0, "lifespan": "on"}
        self._server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, **options))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            threading.Event().wait(0.01)

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, path: str = "mcp", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{path}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(5)


def app_of(server: MCPServer, transport: Literal["http", "sse"]) -> Any:
    return server.streamable_http_app() if transport == "http" else server.sse_app()


@contextmanager
def serving(seen: Seen | None = None, transport: Literal["http", "sse"] = "http") -> Iterator[str]:
    with ServerThread(app_of(make_server(seen), transport)) as thread:
        yield thread.url("mcp" if transport == "http" else "sse")


@contextmanager
def watched(transport: Literal["http", "sse"] = "http") -> Iterator[tuple[str, Seen]]:
    """The URL of a server, and what it has seen."""
    seen = Seen()
    with serving(seen, transport) as url:
        yield url, seen


if __name__ == "__main__":
    make_server().run("stdio" if sys.argv[1:] == ["stdio"] else "streamable-http")
