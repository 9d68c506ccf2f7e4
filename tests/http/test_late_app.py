"""The application that comes late: what waits for it, how long, and what it hears if nothing comes."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from gpt_oss_server.app import create_app
from gpt_oss_server.http.late_app import LateApp
from tests.doubles.serving import scripted

HELLO = "<|channel|>final<|message|>Hello!<|return|>"


@asynccontextmanager
async def alive(late: LateApp) -> AsyncGenerator[asyncio.Event, None]:
    """Runs the lifespan; yields an event that stops it."""
    stop, states = asyncio.Event(), [{"type": "lifespan.startup"}]
    started = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not states:
            await stop.wait()
            return {"type": "lifespan.shutdown"}
        return states.pop()

    async def send(message: Any) -> None:
        started.set()

    running = asyncio.create_task(late({"type": "lifespan"}, receive, send))
    await started.wait()
    yield stop
    stop.set()
    await running


async def ask(late: LateApp, path: str, kind: str = "http") -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    scope = {"type": kind, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(b"host", b"localhost")], "root_path": "", "scheme": "http", "http_version": "1.1"}
    scope |= {"client": ("::1", 1), "server": ("::1", 2), "asgi": {"version": "3.0"}}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request" if kind == "http" else "websocket.connect", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await late(scope, receive, send)
    return sent


async def status(late: LateApp, path: str) -> int:
    return int((await ask(late, path))[0]["status"])


def made_when(may_load: threading.Event) -> FastAPI:
    """The application, once it may be loaded; one of its routes has a bug."""
    assert may_load.wait(60)
    app = create_app(scripted(HELLO))

    @app.get("/fails")
    async def fails() -> None:
        raise ValueError("a bug")

    return app


async def test_a_request_waits_for_the_application() -> None:
    may_load, ended = threading.Event(), asyncio.Event()
    late = LateApp(lambda: made_when(may_load), ended.set)
    async with alive(late):
        assert late.loading
        assert [await status(late, path) for path in ("/health", "/ready", "/metrics")] == [200, 503, 503]
        waiting = asyncio.create_task(ask(late, "/v1/models"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        may_load.set()
        start, body = await waiting
        assert (start["status"], json.loads(body["body"])["data"][0]["id"]) == (200, "scripted")
        await ended.wait()
        assert not late.loading
        assert await status(late, "/ready") == 200


async def test_patience_ends_with_an_error_that_says_when_to_try_again() -> None:
    may_load = threading.Event()
    late = LateApp(lambda: made_when(may_load), bool, patience=0.01)
    async with alive(late):
        start, body = await ask(late, "/v1/models")
        assert start["status"] == 503
        assert b"retry-after" in dict(start["headers"])
        assert b"x-request-id" in dict(start["headers"])
        assert json.loads(body["body"])["error"]["code"] == "server_is_overloaded"
        closed = await ask(late, "/v1/responses", "websocket")
        assert closed == [{"type": "websocket.close", "code": 1013}]
        may_load.set()


async def test_a_failure_is_kept_for_the_caller() -> None:
    ended = asyncio.Event()

    def fail() -> FastAPI:
        raise ValueError("no model")

    late = LateApp(fail, ended.set)
    async with alive(late):
        await ended.wait()
        assert str(late.failure) == "no model"
        assert await status(late, "/v1/models") == 503


async def test_a_request_that_waited_has_one_id() -> None:
    may_load = threading.Event()
    late = LateApp(lambda: made_when(may_load), bool)
    async with alive(late):
        waiting = asyncio.create_task(ask(late, "/fails"))
        await asyncio.sleep(0.05)
        may_load.set()
        start, body = await waiting
    assert start["status"] == 500
    assert dict(start["headers"])[b"x-request-id"] in body["body"]  # which names the id in the log
