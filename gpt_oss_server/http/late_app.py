"""Serves from the moment the socket listens, while a thread still makes the real application.

Until then, `/live` and `/health` answer 200, `/ready` answers 503, and all other requests wait. It must not
import the rooms of the APIs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gpt_oss_server import __version__
from gpt_oss_server.errors import EngineUnavailable
from gpt_oss_server.http.answers import error_answer
from gpt_oss_server.http.edge import Edge

if TYPE_CHECKING:
    from fastapi import FastAPI

PATIENCE = 60.0  # seconds that a request waits; proxies give up then
_RETRY_AFTER = 5
_TRY_AGAIN_LATER = 1013  # of WebSocket


class LateApp:
    """An ASGI application. `ended` is called on the event loop, once `make` has returned or raised."""

    def __init__(
        self, make: Callable[[], FastAPI], ended: Callable[[], None], *, patience: float = PATIENCE
    ) -> None:
        self._make, self._ended, self._patience = make, ended, patience
        self.app: FastAPI | None = None  # once it serves
        self._over: asyncio.Future[None] | None = None  # done: nothing is left to wait for
        self._early = Edge(_answer_early)
        self._making: asyncio.Future[FastAPI] | None = None
        self.failure: BaseException | None = None

    @property
    def loading(self) -> bool:
        return self._making is not None and not self._making.done()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if self.app is None and self._over is not None and not _asks_for_state(scope):
            await asyncio.wait({self._over}, timeout=self._patience)
        await (self.app or self._early)(scope, receive, send)  # the application has an `Edge` of its own

    def stop_waiting(self) -> None:
        """Refuses the requests that wait, because the server is stopping."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    # The lifespan -------------------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._over = asyncio.get_running_loop().create_future()
        making = self._begin()
        await send({"type": "lifespan.startup.complete"})
        stopping = asyncio.ensure_future(receive())
        either: set[asyncio.Future[Any]] = {making, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            await self._serve(making, stopping)
        await stopping
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, making: asyncio.Future[FastAPI], stopping: asyncio.Future[Any]) -> None:
        try:
            app = making.result()
            async with app.router.lifespan_context(app):
                self.app = app
                self.stop_waiting()
                self._ended()
                await stopping
        except Exception as error:  # whatever it is, the thread that started the server raises it
            self.failure = error
            self.stop_waiting()
            self._ended()

    def _begin(self) -> asyncio.Future[FastAPI]:
        """Runs `make` on a daemon thread: a process that is stopped does not wait for a download."""
        made: Future[FastAPI] = Future()

        def run() -> None:
            try:
                app = self._make()
            except Exception as error:
                made.set_exception(error)
            else:
                made.set_result(app)

        threading.Thread(target=run, name="loading", daemon=True).start()
        self._making = asyncio.wrap_future(made)
        return self._making


# Requests before the application exists ---------------------------------------------------------------


def _asks_for_state(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["path"].rstrip("/") in ("/live", "/health", "/ready", "/metrics")


async def _answer_early(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
    elif scope["path"] == "/live":
        await JSONResponse({"status": "alive"})(scope, receive, send)
    elif scope["path"] == "/health":
        state = {"status": "ok", "version": __version__, "ready": False}
        await JSONResponse(state)(scope, receive, send)
    else:
        error = EngineUnavailable(
            "The model is still loading. GET /ready answers 200 once it can generate.",
            retry_after=_RETRY_AFTER,
        )
        await error_answer(error)(scope, receive, send)
