"""One connection to an MCP server, opened and closed in a task of its own.

The transports of the `mcp` package hold cancel scopes that must be left in the task that entered them, but
calls come from many tasks and are cancelled there: an owner task holds the connection. A lost one stays lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import anyio
from mcp.client import Client

from tools.mcp.failures import McpFailure, explain, undelivered
from tools.mcp.transports import Attempt, Dialler

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_CONNECT_SECONDS = 30.0
_LEAVE_SECONDS = 10.0
_REASON_SECONDS = 0.25


class McpConnection:
    """A connection that opens at the first request."""

    def __init__(self, label: str, dialler: Dialler) -> None:
        self._label = label
        self._dialler = dialler
        self._stop = asyncio.Event()
        self._connected: asyncio.Future[Client] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._lost: McpFailure | None = None

    @property
    def usable(self) -> bool:
        return self._lost is None and not self._stop.is_set()

    @property
    def ended(self) -> bool:
        """Whether it has released everything."""
        return not self.usable and (self._owner is None or self._owner.done())

    async def request(self, send: Callable[[Client], Awaitable[_T]], seconds: float) -> _T:
        """Sends one request. Raises McpFailure; cancelling it cancels the request at the server."""
        if not self.usable:
            raise self._end()
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(send)
        except TimeoutError:
            message = f"The MCP server {self._label!r} did not answer within {seconds:g} seconds."
            failure = McpFailure(message, lost=True)
        except McpFailure as refusal:
            failure = refusal
        if failure.lost:
            self._lose(failure)
        raise failure

    async def close(self) -> None:
        """Closes the connection. May be called repeatedly and from any task."""
        self._stop.set()
        owner = self._owner
        if owner is None or owner.done():
            return
        with anyio.CancelScope(shield=True):
            if self._connected is not None and self._connected.done():
                await asyncio.wait({owner}, timeout=_LEAVE_SECONDS)
            if not owner.done():  # it connects, and does not look whether it shall stop
                owner.cancel()
                await asyncio.wait({owner}, timeout=_LEAVE_SECONDS)

    async def _answer(self, send: Callable[[Client], Awaitable[_T]]) -> _T:
        client, owner = await self._client()
        work = asyncio.ensure_future(send(client))
        try:
            both: set[asyncio.Future[Any]] = {work, owner}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or work.cancelled() or (work.exception() is not None and owner.done()):
                raise self._end()
            error = work.exception()
            if error is None:
                return work.result()
            failure = self._failure(error)
            if failure.lost:
                # The owner ends a moment later, with a better reason than "it was closed".
                await asyncio.wait({owner}, timeout=_REASON_SECONDS)
            raise self._end() if owner.done() else failure
        finally:
            if not work.done():
                work.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait({work}, timeout=_LEAVE_SECONDS)

    async def _client(self) -> tuple[Client, asyncio.Task[None]]:
        if self._connected is None or self._owner is None:
            loop = asyncio.get_running_loop()
            self._connected = loop.create_future()
            self._owner = loop.create_task(self._own(self._connected), name="an MCP connection")
        both: set[asyncio.Future[Any]] = {self._connected, self._owner}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not self._connected.done() or self._owner.done():
            raise self._end()
        return self._connected.result(), self._owner

    async def _own(self, connected: asyncio.Future[Client]) -> None:
        """Runs for the connection's whole life. Reports errors to the waiting requests and raises none."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS) as deadline:
                await self._connect_and_hold(connected, deadline)
        except Exception as error:
            self._lose(self._failure(error))
        finally:
            self._stop.set()

    async def _connect_and_hold(self, connected: asyncio.Future[Client], deadline: asyncio.Timeout) -> None:
        attempt, refused = self._dialler.first_attempt(), None
        while True:
            try:
                async with AsyncExitStack() as stack:
                    client = await self._dialler.enter(stack, attempt)
                    deadline.reschedule(None)
                    connected.set_result(client)
                    await self._until_its_end(attempt)
                return
            except Exception as error:
                following = None if connected.done() else self._dialler.next_attempt(attempt, error)
                if following is None:
                    if refused is not None and not connected.done() and self._dialler.is_turned_away:
                        raise refused from error  # the first refusal is the better reason
                    raise
                refused = self._failure(error) if (attempt[0], following[0]) == ("http", "sse") else None
                attempt = following

    async def _until_its_end(self, attempt: Attempt) -> None:
        """Waits for the end. Over SSE a refused message is one, because its request would wait for ever."""
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
        if attempt[0] == "sse":
            ends.append(asyncio.ensure_future(self._dialler.post_refused()))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if not self._stop.is_set():
            raise undelivered(self._label, self._dialler.last_status)

    def _failure(self, error: BaseException) -> McpFailure:
        failure = explain(error, self._label, status=self._dialler.last_status)
        message = self._dialler.credentials.redact(str(failure))
        return McpFailure(message, lost=failure.lost, gone=failure.gone)

    def _lose(self, failure: McpFailure) -> None:
        if self._lost is None:
            self._lost = failure
            # A server may forget a session at any time; the next call opens another.
            level = logging.INFO if failure.gone else logging.WARNING
            _log.log(level, "An MCP connection ended: %s", failure)
        self._stop.set()

    def _end(self) -> McpFailure:
        message = f"The connection to the MCP server {self._label!r} was closed."
        return self._lost or McpFailure(message, lost=True)
