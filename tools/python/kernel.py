"""One running kernel for its session: runs source, interrupts it, and ends.

It can exhaust neither memory nor the event loop: a message that is too large ends its channel, unread ones
wait in the box, and a flood gets a fifth of the loop's time at most, less once its output is cut.
"""

import asyncio
import secrets
import time
from contextlib import suppress
from enum import Enum, auto

from tools.python.channel import Channel, ChannelEnded, Kind, Received, connect, received, request
from tools.python.outputs import CellOutputLimits, Outputs
from tools.python.sandboxes.box import Box
from tools.python.sandboxes.launch import KernelConnection

_TURN = 0.002  # seconds of work on messages before other tasks may run
_REST = 4  # times as long as the work, the rest after it
_FLOOD_REST = 20  # the same for a cell whose output is already cut
_GREETINGS, _GREETING_WAIT = 6, 0.1  # each wait is twice the previous one: 6.3 s in all
_END_GRACE = 1.0  # seconds in which a process may follow the end of its outputs


class Ended(Enum):
    """How a cell ended."""

    DONE = auto()  # with a result or with an exception of its own
    DEAD = auto()  # the kernel's process ended
    LOST = auto()  # the cell ended, but its outputs no longer arrive


class _Cell:
    def __init__(self, message_id: str, outputs: Outputs) -> None:
        self.id = message_id
        self.outputs = outputs
        self.replied = asyncio.Event()
        self.idle = asyncio.Event()


class Kernel:
    """A connected kernel. One cell at a time."""

    def __init__(self, box: Box, connection: KernelConnection) -> None:
        self.box = box
        self.used = time.monotonic()
        self._connection = connection
        self._session = secrets.token_hex(8)
        self._cell: _Cell | None = None
        self._channels: dict[str, Channel] = {}
        self._gone = asyncio.create_task(box.wait())
        self._readers: dict[str, asyncio.Task[None]] = {}

    @property
    def alive(self) -> bool:
        return not self._gone.done()

    async def connect(self) -> None:
        """Connects each channel once, before any code has run. Raises ChannelEnded."""
        for name, kind in (("iopub", Kind.OUTPUTS), ("shell", Kind.REQUESTS), ("control", Kind.REQUESTS)):
            path = self._connection.path(self.box.sockets, name)
            self._channels[name] = await connect(path, kind)
        # Answers on the control channel are read too, as they would fill it up.
        self._readers = {name: asyncio.create_task(self._read(at)) for name, at in self._channels.items()}

    async def greet(self) -> bool:
        """Whether outputs arrive. Tries repeatedly, because a subscription takes effect after connecting."""
        cell = self._cell = _Cell(secrets.token_hex(16), Outputs(CellOutputLimits()))
        try:
            for number in range(_GREETINGS):
                # A repeated request would be refused as a replay, so each one differs.
                self._send("shell", "kernel_info_request", cell.id, {"number": number})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GREETING_WAIT * 2**number):
                        return await self._before_the_end(cell.idle)
            return False
        finally:
            self._cell = None

    async def execute(self, source: str, outputs: Outputs) -> Ended:
        """Runs a cell to its end. Cancelling stops the wait but not the cell: see `stop`."""
        self.box.use(True)
        cell = _Cell(secrets.token_hex(16), outputs)
        self._cell = cell
        options = {"silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
        content = {"code": source, "user_expressions": {}, **options}
        self._send("shell", "execute_request", cell.id, content)
        return await self._wait_for_end(cell)

    async def stop(self, grace: float) -> bool:
        """Interrupts the cell. Returns whether it ended within `grace` seconds and the kernel is usable."""
        cell = self._cell
        if cell is None or not self.alive:
            return self.alive
        self._send("control", "interrupt_request", secrets.token_hex(16), {})
        try:
            async with asyncio.timeout(grace):
                return await self._wait_for_end(cell) is Ended.DONE
        except TimeoutError:
            return False

    async def kill(self, why: str) -> None:
        """Kills it with everything it started; `why` is then its box's verdict."""
        await asyncio.to_thread(self.box.end, why)  # the watchdog may be at work on the box
        await asyncio.wait({self._gone})

    async def end(self) -> None:
        """Kills it with everything it started, and releases everything except the files."""
        self.box.kill()
        for task in self._readers.values():
            task.cancel()
        for channel in self._channels.values():
            channel.close()
        await asyncio.gather(*self._readers.values(), return_exceptions=True)
        await asyncio.shield(self._gone)  # releasing continues even if this call is cancelled

    async def _wait_for_end(self, cell: _Cell) -> Ended:
        ended = Ended.DONE
        if not await self._before_the_end(cell.replied):
            ended = Ended.DEAD
        elif not await self._before_the_end(cell.idle, self._readers["iopub"]):  # it comes after all outputs
            await asyncio.wait({self._gone}, timeout=_END_GRACE)
            ended = Ended.LOST if self.alive else Ended.DEAD
        self._cell = None
        self.used = time.monotonic()
        self.box.use(False)
        return ended

    async def _before_the_end(self, event: asyncio.Event, *of: asyncio.Task[None]) -> bool:
        """Waits for the event; False if one of these tasks, or the process, ended first."""
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting, self._gone, *of}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()

    def _send(self, channel: str, kind: str, message_id: str, content: dict[str, object]) -> None:
        frames = request(self._connection.key, kind, message_id, self._session, content)
        self._channels[channel].send(frames)

    async def _read(self, channel: Channel) -> None:
        """Reads messages off a channel for as long as it lives; if it ends, no more outputs arrive."""
        worked = 0.0
        while True:
            waiting = time.monotonic()
            try:
                frames = await channel.receive()
            except ChannelEnded:
                return
            began = time.monotonic()
            if began - waiting > _TURN:
                worked = 0.0  # other tasks could run meanwhile
            message = received(frames)
            if message is not None:
                self._take(message)
            worked += time.monotonic() - began
            if worked > _TURN:
                flooding = self._cell is None or self._cell.outputs.full
                await asyncio.sleep(worked * (_FLOOD_REST if flooding else _REST))
                worked = 0.0

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
