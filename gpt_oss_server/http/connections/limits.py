"""The limits of connections, and the time that a client has to send a request."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    count: int = 2048  # open connections
    head_bytes: int = 64 * 1024  # of one request: its first line and headers, or its trailers
    line_bytes: int = 16 * 1024  # of one header
    seconds: float = 30.0  # for a head, and for a body in addition to the time of `body_rate`
    body_rate: int = 10 * 1024  # bytes a second, the slowest that a body may arrive
    handshake_seconds: float = 10.0  # for TLS


@dataclass(slots=True)
class Deadline:
    """One timer for the head, then the body of each request. It stands while the server does not read."""

    loop: asyncio.AbstractEventLoop
    limits: ConnectionLimits
    is_paused: Callable[[], bool]
    expire: Callable[[], None]
    _due: float = field(default=0.0, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def start(self) -> None:
        """The time for a head, or for a body, begins."""
        self._due = self.loop.time() + self.limits.seconds
        if self._timer is None:
            self._wake_at(self._due)

    def extend(self, received: int) -> None:
        """Bytes of a body give it time for more."""
        self._due += received / self.limits.body_rate

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_at(self, when: float) -> None:
        self._timer = self.loop.call_at(when, self._check)

    def _check(self) -> None:
        if self.is_paused():
            self._due = self.loop.time() + self.limits.seconds
        if self._due > self.loop.time():
            self._wake_at(self._due)
        else:
            self._timer = None
            self.expire()
