"""One running kernel as its session uses it: run source, interrupt, end.

In: a box whose kernel listens, source. Out: the messages of each cell into its `Outputs`, and how the cell
ended. All sockets are bounded: a message over MAX_MESSAGE ends its channel, few may wait in line, and a
cell that floods is read slowly once its output is cut anyway, so that neither memory nor the event loop is
at the kernel's mercy.
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

from tools.python.outputs import OutputLimits, Outputs
from tools.python.sandboxes.sandbox import Box, Connection
from tools.python.wire import Received, received, request

MAX_MESSAGE = 8 * 1024 * 1024  # bytes of one frame; `inside.py` keeps honest messages below it
_WAITING = 8  # messages in line for us, so at most 64 MiB for each channel
_BURST = 64  # messages read before others get their turn
_TURN = 0.002  # seconds of the same
_PAUSE = 0.005  # between bursts
_FLOOD_PAUSE = 0.02  # between bursts of a cell whose output is cut already
_GREETINGS, _GREETING_WAIT = 6, 0.1  # each wait twice the one before: 6.3 s in all
# Milliseconds until a lost channel is connected to again: the code inside can replace the socket's file by a
# link to one of the host's sockets, which a second connection would follow. Not -1, libzmq's word for never:
# that takes the socket's messages away between two parts of one, and reading the next part then aborts the
# whole process (its issues 2163 and 3663).
_NEVER = 1_000_000_000
IDLE_GRACE = 1.0  # seconds for the last outputs to follow a cell's reply


def attach(socket: zmq.Socket[Any], address: str) -> None:
    """Connects a channel, bounded and once: whatever its other end does costs no more than the channel."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, _WAITING)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
    socket.setsockopt(zmq.RECONNECT_IVL, _NEVER)
    socket.connect(address)


class Ended(Enum):
    """How a cell ended."""

    DONE = auto()  # with a result or with an exception of its own
    DEAD = auto()  # the kernel's process ended
    LOST = auto()  # the cell ended, but its outputs no longer reach us


class _Cell:
    """A request that is under way."""

    def __init__(self, message_id: str, outputs: Outputs) -> None:
        self.id = message_id
        self.outputs = outputs
        self.replied = asyncio.Event()
        self.idle = asyncio.Event()


class Kernel:
    """A connected kernel. One cell at a time."""

    def __init__(self, box: Box, connection: Connection, context: zmq.asyncio.Context) -> None:
        self.box = box
        self.started = time.monotonic()
        self.used = self.started
        self._connection = connection
        self._session = secrets.token_hex(8)
        self._cell: _Cell | None = None
        self._doubtful = False  # a cell ended, but its end did not reach us
        self._shell = context.socket(zmq.DEALER)
        self._control = context.socket(zmq.DEALER)
        self._iopub = context.socket(zmq.SUB)
        self._gone = asyncio.create_task(box.wait())
        self._readers: list[asyncio.Task[None]] = []

    @property
    def alive(self) -> bool:
        return not self._gone.done()

    def connect(self) -> None:
        """Connects each channel, once and before any code ran."""
        self._iopub.setsockopt(zmq.SUBSCRIBE, b"")
        for socket, channel in (
            (self._shell, "shell"),
            (self._control, "control"),
            (self._iopub, "iopub"),
        ):
            attach(socket, self._connection.address(self.box.sockets, channel))
        self._readers = [asyncio.create_task(self._read(each)) for each in (self._iopub, self._shell)]

    async def greet(self) -> bool:
        """Whether outputs reach us, asked repeatedly: a subscription takes effect after connecting."""
        cell = self._cell = _Cell(secrets.token_hex(16), Outputs(OutputLimits()))
        try:
            for number in range(_GREETINGS):
                # A request seen before is refused as a replay, so the same one differs in something.
                await self._send(self._shell, "kernel_info_request", cell.id, {"number": number})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GREETING_WAIT * 2**number):
                        return await self._first(cell.idle.wait())
            return False
        finally:
            self._cell = None

    async def execute(self, source: str, outputs: Outputs) -> Ended:
        """Runs a cell to its end. Cancelling stops waiting for it, not the cell: see `stop`."""
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
        """Interrupts the cell; whether it ended within `grace` seconds and the kernel can go on."""
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
        """Kills it with all it started and gives everything back but the files."""
        self.box.kill()
        for task in self._readers:
            task.cancel()
        for socket in (self._shell, self._control, self._iopub):
            socket.close(linger=0)
        await asyncio.gather(*self._readers, return_exceptions=True)
        await asyncio.shield(self._gone)  # it goes on giving things back even if we are cancelled

    async def _end_of(self, cell: _Cell) -> Ended:
        if not await self._first(cell.replied.wait()):
            return Ended.DEAD
        try:
            async with asyncio.timeout(IDLE_GRACE):
                ended = Ended.DONE if await self._first(cell.idle.wait()) else Ended.DEAD
        except TimeoutError:
            # Messages of a flood are dropped, perhaps also the last one; then the channel itself still works.
            self._doubtful = True
            self._doubtful = not await self.greet()
            ended = Ended.LOST if self._doubtful else Ended.DONE
        self._cell = None
        self.used = time.monotonic()
        self.box.use(False)
        return ended

    async def _first(self, event: Coroutine[Any, Any, object]) -> bool:
        """Waits for the event; False when the process ended before it."""
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
        with suppress(zmq.Again):  # a channel that the kernel closed: the time-out or its end will tell
            await socket.send_multipart(frames, zmq.DONTWAIT)

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        """Takes messages off a channel for as long as the kernel lives."""
        count, since = 0, time.monotonic()
        while True:
            arrived = asyncio.ensure_future(socket.recv_multipart())
            if not arrived.done():  # nothing in line: no burst
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
            return  # of an earlier cell's threads, or of none
        if message.kind == "status":
            if message.content.get("execution_state") == "idle":
                cell.idle.set()
        elif message.kind.endswith("_reply"):
            cell.replied.set()
        else:
            cell.outputs.feed(message)
