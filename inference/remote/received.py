"""What arrives on one connection, in pieces.

asyncio's own streams take twice the processor's time for each token of an engine, mostly to bound each wait.
Here one timer looks at the connection at times.
"""

import asyncio
from typing import cast

_MOST = 262_144  # bytes that wait to be read before the other side is slowed down


class Received(asyncio.Protocol):
    def __init__(self, patience: float) -> None:
        """`patience` is the longest wait for a piece, in seconds."""
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_slowed = self._has_ended = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._waits_since = 0.0
        # From the connection on: a running timer would keep one that could not be made alive for ever.
        self._timer: asyncio.TimerHandle | None = None

    async def piece(self) -> bytes:
        """All that has arrived; nothing at the end. Raises `OSError`, after a silence `TimeoutError`."""
        if not self._pieces and not self._has_ended:
            self._reader, self._waits_since = self._loop.create_future(), self._loop.time()
            try:
                await self._reader
            finally:
                self._reader = None
        if not self._pieces:
            if self._failure is not None:
                raise self._failure
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._is_slowed:
            self._is_slowed = False
            self.transport.resume_reading()
        return data

    def abort(self) -> None:
        self._stop_timer()
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._timer = self._loop.call_later(self._patience, self._look)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MOST and not self._is_slowed:
            self._is_slowed = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = True
        self._failure = self._failure or error
        self._stop_timer()
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _look(self) -> None:
        waited = 0.0 if self._reader is None else self._loop.time() - self._waits_since
        if waited >= self._patience:
            self.connection_lost(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._patience - waited, self._look)
