"""A real server on a free port of 127.0.0.1, in a thread of the test process."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import uvicorn

from gpt_oss_server.app import create_app
from gpt_oss_server.http.connections.http_protocol import HttpProtocol
from gpt_oss_server.http.connections.limits import ConnectionLimits
from gpt_oss_server.http.connections.socket_protocol import SocketProtocol
from gpt_oss_server.settings import Settings
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from tests.doubles.waiting import until_found, wait_until

VOCABULARY = 201_088
HELLO = "<|channel|>final<|message|>Hello!<|return|>"


def scripted(*turns: object, **options: object) -> ScriptedEngine:
    return ScriptedEngine(parse_script({"turns": list(turns), **options}, VOCABULARY))


@contextmanager
def serving(
    engine: Any,
    settings: Settings | None = None,
    *,
    wrap: Callable[[Any], Any] = lambda app: app,
    limits: ConnectionLimits | None = None,
    port: int = 0,
    **parts: Any,
) -> Iterator[str]:
    """Yields the base URL, e.g. http://127.0.0.1:41234/v1. `wrap` can wrap the application.

    `parts` are further arguments of `create_app`. The python tool is off unless the settings name a sandbox:
    with "auto" a server starts one to see whether it works, which takes half a second of a processor.
    """
    settings = settings or Settings()
    if settings.python == "auto":
        settings = replace(settings, python="off")
    app = wrap(create_app(engine, settings, **parts))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for a port that is given
    listener.bind(("127.0.0.1", port))
    http: Any = HttpProtocol.within(limits or ConnectionLimits())
    options: dict[str, Any] = {"http": http, "ws": SocketProtocol, "timeout_graceful_shutdown": 5}
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, **options))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the server does not start")
        assert thread.is_alive(), "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


async def leave_in_the_middle(
    url: str, body: dict[str, Any], engine: ScriptedEngine, generations: int = 1
) -> None:
    """Sends a request, disconnects once `generations` are running, and waits until none is."""

    async def active() -> int:
        return engine.active

    async with httpx.AsyncClient(timeout=None) as client:
        request = asyncio.create_task(client.post(url, json=body))
        await until_found(active, lambda count: count == generations)
        request.cancel()
        await asyncio.wait({request})
    await until_found(active, lambda count: count == 0)
