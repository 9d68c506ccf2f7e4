"""One running kernel for its session: runs source, interrupts it, and ends.

Takes a box whose kernel listens, and source. Feeds the messages of each cell into its `Outputs`, and returns
how the cell ended. All sockets are limited: a message over MAX_MESSAGE ends its channel, only a few may
queue, and a cell that floods is read slowly once its output is cut anyway, so that a kernel can exhaust
neither memory nor the event loop.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import zmq
import zmq.asyncio

from tools.python.outputs import CellOutputLimits, Outputs
from tools.python.sandboxes.sandbox import Box, KernelConnection
from tools.python.wire import Received, received, request

MAX_MESSAGE = 8 * 1024 * 1024  # bytes of one frame; `inside.py` keeps honest messages below it
_WAITING = 8  # queued messages, so at most 64 MiB for each channel
_BURST = 64  # messages read before other tasks may run
_TURN = 0.002  # the same limit in seconds
_PAUSE = 0.005  # between bursts
_FLOOD_PAUSE = 0.02  # between bursts of a cell whose output is already cut
_GREETINGS, _GREETING_WAIT = 6, 0.1  # each wait is twice the previous one: 6.3 s in all
# Milliseconds until a lost channel reconnects. Code in the box can replace the socket's file by a link to one
# of the host's sockets, which a second connection would follow. Not -1, libzmq's value for never: it removes
# the socket's messages between two parts of one, and reading the next part then aborts the whole process
# (libzmq issues 2163 and 3663).
_NEVER = 1_000_000_000
IDLE_GRACE = 1.0  # seconds in which the last outputs may follow a cell's reply


def attach(socket: zmq.Socket[Any], address: str) -> None:
    """Connects a channel once, with limits: nothing that its other end does costs more than the channel."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, _WAITING)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
    socket.setsockopt(zmq.RECONNECT_IVL, _NEVER)
    socket.connect(address)


class Ended(Enum):
    """How a cell ended."""

    DONE = auto()  # with a result or with an exception of its own
    DEAD = auto()  # the kernel's process ended
    LOST = auto()  # the cell ended, but its outputs no longer arrive


class _Cell:
    """A running request."""

    def __init__(self, message_id: str, outputs: Outputs) -> None:
        self.id = message_id
        self.outputs = outputs
        self.replied = asyncio.Event()
        self.idle = asyncio.Event()


class Kernel:
    """A connected kernel. One cell at a time."""

    def __init__(self, box: Box, connection: KernelConnection, context: zmq.asyncio.Context) -> None:
        self.box = box
        self.started = time.monotonic()
        self.used = self.started
        self._connection = connection
        self._session = secrets.token_hex(8)
        self._cell: _Cell | None = None
        self._doubtful = False  # a cell ended, but the message of its end did not arrive
        self._shell = context.socket(zmq.DEALER)
        self._control = context.socket(zmq.DEALER)
        self._iopub = context.socket(zmq.SUB)
        self._gone = asyncio.create_task(box.wait())
        self._readers: list[asyncio.Task[None]] = []

    @property
    def alive(self) -> bool:
        return not self._gone.done()

    def connect(self) -> None:
        """Connects each channel once, before any code has run."""
        self._iopub.setsockopt(zmq.SUBSCRIBE, b"")
        for socket, channel in (
            (self._shell, "shell"),
            (self._control, "control"),
            (self._iopub, "iopub"),
        ):
            attach(socket, self._connection.address(self.box.sockets, channel))
        self._readers = [asyncio.create_task(self._read(each)) for each in (self._iopub, self._shell)]

    async def greet(self) -> bool:
        """Whether outputs arrive. Tries repeatedly, because a subscription takes effect after connecting."""
        cell = self._cell = _Cell(secrets.token_hex(16), Outputs(CellOutputLimits()))
        try:
            for number in range(_GREETINGS):
                # A repeated request would be refused as a replay, so each one differs.
                await self._send(self._shell, "kernel_info_request", cell.id, {"number": number})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GREETING_WAIT * 2**number):
                        return await self._first(cell.idle.wait())
            return False
        finally:
            self._cell = None

    async def execute(self, source: str, outputs: Outputs) -> Ended:
        """Runs a cell to its end. Cancelling stops the wait but not the cell: see `stop`."""
        self.box.use(True)
        cell = _Cell(secrets.token_hex(16), outputs)
        self._cell = cell
        content = {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        await self._send(self._shell, "execute_request", cell.id, content)
        return await self._end_of(cell)

    async def stop(self, grace: float) -> bool:
        """Interrupts the cell. Returns whether it ended within `grace` seconds and the kernel is usable."""
        cell = self._cell
        if cell is None or not self.alive:
            return self.alive and not self._doubtful
        await self._send(self._control, "interrupt_request", secrets.token_hex(16), {})
        try:
            async with asyncio.timeout(grace):
                return await self._end_of(cell) is Ended.DONE
        except TimeoutError:
            return False

    async def end(self) -> None:
        """Kills it with everything it started, and releases everything except the files."""
        self.box.kill()
        for task in self._readers:
            task.cancel()
        for socket in (self._shell, self._control, self._iopub):
            socket.close(linger=0)
        await asyncio.gather(*self._readers, return_exceptions=True)
        await asyncio.shield(self._gone)  # releasing continues even if this call is cancelled

    async def _end_of(self, cell: _Cell) -> Ended:
        if not await self._first(cell.replied.wait()):
            return Ended.DEAD
        try:
            async with asyncio.timeout(IDLE_GRACE):
                ended = Ended.DONE if await self._first(cell.idle.wait()) else Ended.DEAD
        except TimeoutError:
            # Some messages of a flood are dropped, perhaps the last one too; the channel itself still works
            # then.
            self._doubtful = True
            self._doubtful = not await self.greet()
            ended = Ended.LOST if self._doubtful else Ended.DONE
        self._cell = None
        self.used = time.monotonic()
        self.box.use(False)
        return ended

    async def _first(self, event: Coroutine[Any, Any, object]) -> bool:
        """Waits for the event; False if the process ended first."""
        waiting = asyncio.ensure_future(event)
        try:
            await asyncio.wait({waiting, self._gone}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()

    async def _send(
        self, socket: zmq.asyncio.Socket, kind: str, message_id: str, content: dict[str, object]
    ) -> None:
        frames = request(self._connection.key, kind, message_id, self._session, content)
        with suppress(zmq.Again):  # the kernel closed the channel: the time-out or its end follows
            await socket.send_multipart(frames, zmq.DONTWAIT)

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        """Reads messages off a channel for as long as the kernel lives."""
        count, since = 0, time.monotonic()
        while True:
            arrived = asyncio.ensure_future(socket.recv_multipart())
            if not arrived.done():  # the queue is empty: no burst
                count = 0
            frames = await arrived
            since = since if count else time.monotonic()
            message = received(frames)
            if message is not None:
                self._take(message)
            count += 1
            if count >= _BURST or time.monotonic() - since > _TURN:
                await asyncio.sleep(_FLOOD_PAUSE if self._flooding() else _PAUSE)
                count = 0

    def _flooding(self) -> bool:
        return self._cell is None or self._cell.outputs.full

    def _take(self, message: Received) -> None:
        cell = self._cell
        if cell is None or message.parent != cell.id:
            return  # from threads of an earlier cell, or without a request
        if message.kind == "status":
            if message.content.get("execution_state") == "idle":
                cell.idle.set()
        elif message.kind.endswith("_reply"):
            cell.replied.set()
        else:
            cell.outputs.feed(message)
