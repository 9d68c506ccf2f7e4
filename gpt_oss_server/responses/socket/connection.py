"""WebSocket mode of the Responses API: one connection, on which lanes run beside each other.

In: an accepted WebSocket and the service. Out: the events that a stream over HTTP would have, each as one
text frame. Requests of the same `stream_id`, or without one, are a lane: one after the other, in the order
they came. Responses that are not stored are remembered for as long as the connection lives. When the client
leaves, all that runs is cancelled; when the server stops, all that was asked for is finished first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import Message, Receive, Send

from gpt_oss_server.errors import ApiError, SocketLimitReached
from gpt_oss_server.http.keepalive import pump
from gpt_oss_server.responses.refused import RefusedRun
from gpt_oss_server.responses.run import Run
from gpt_oss_server.responses.service import ResponsesService
from gpt_oss_server.responses.socket.frames import (
    Create,
    FrameError,
    Steer,
    error_text,
    event_text,
    read_frame,
    steer_refusal,
)
from gpt_oss_server.responses.stream import Event
from gpt_oss_server.serving.counters import counted
from gpt_oss_server.stores.connection import MAX_RESPONSES, ConnectionStore

MAX_LANES = 64  # that have something to do; an idle lane costs nothing
MAX_WAITING = 64  # in one lane
SERVER_STOPS = 1012  # the close code of a server that goes away in good order
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lane:
    waiting: deque[Create] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None


class Connection:
    """Serve once; returns when the connection has ended."""

    def __init__(self, service: ResponsesService, receive: Receive, send: Send) -> None:
        self._service = service
        self._receive = receive
        self._send = send
        self._store = ConnectionStore(service.store)
        self._lanes: dict[str | None, _Lane] = {}  # those that have something to do
        self._made_in: OrderedDict[str, str | None] = (
            OrderedDict()
        )  # response id → the lane that it was made in

    async def serve(self) -> None:
        try:
            while (message := await self._receive())["type"] != "websocket.disconnect":
                await self._take(message)
            if message.get("code") == SERVER_STOPS:
                await asyncio.gather(*self._work())
                await self._send({"type": "websocket.close", "code": SERVER_STOPS})
        except OSError:
            _log.debug("A client left while it was told something.")
        finally:
            for work in self._work():
                work.cancel()
            await asyncio.gather(*self._work(), return_exceptions=True)
            await self._store.close()

    def _work(self) -> list[asyncio.Task[None]]:
        return [lane.work for lane in self._lanes.values() if lane.work is not None]

    async def _take(self, message: Message) -> None:
        text: str | None = message.get("text")
        try:
            frame = read_frame(message.get("bytes", b"") if text is None else text.encode())
            if isinstance(frame, Steer):
                await self._say(steer_refusal(frame))
            else:
                self._enqueue(frame)
        except FrameError as wrong:
            await self._say(error_text(wrong.error, wrong.lane))

    def _enqueue(self, request: Create) -> None:
        name = request.lane
        lane = self._lanes.get(name)
        if lane is None and len(self._lanes) >= MAX_LANES:
            raise _limit(name, f"{MAX_LANES} lanes of this connection are at work", "open another connection")
        if lane is None:
            lane = self._lanes[name] = _Lane()
            lane.work = asyncio.create_task(self._work_off(name, lane))
        elif len(lane.waiting) >= MAX_WAITING:
            raise _limit(name, f"{MAX_WAITING} requests wait in this lane", "use another `stream_id`")
        lane.waiting.append(request)

    async def _work_off(self, name: str | None, lane: _Lane) -> None:
        try:
            while lane.waiting:
                await self._answer(lane.waiting.popleft())
        except OSError:
            _log.debug("A client left while it was answered.")  # `serve` is told so too, and ends all lanes
        finally:
            del self._lanes[name]

    async def _answer(self, request: Create) -> None:
        try:
            run = await self._service.start_streamed(
                request.body, store=self._store, generates=request.generates
            )
        except ApiError as error:
            await self._failed(request)
            await self._say(error_text(error, request.lane))
            return
        except Exception:
            # A defect of ours; as at the edge of HTTP, the log has it and the client is told without it.
            _log.exception("A request over WebSocket failed.")
            await self._failed(request)
            await self._say(error_text(ApiError("The server failed; its log says why."), request.lane))
            return
        self._remember(run.response["id"], request.lane)
        await self._tell(run, request.lane)
        if run.error is not None:
            await self._failed(request)

    async def _tell(self, run: Run | RefusedRun, lane: str | None) -> None:
        async def write(batch: Sequence[Event]) -> None:
            for event in batch:
                await self._say(event_text(event, lane))

        async def beat() -> None:
            await write(run.still_in_progress())

        events = counted(run.events(), self._service.counters)
        await pump(events, write, beat, self._service.settings.keep_alive)

    def _remember(self, response_id: str, lane: str | None) -> None:
        self._made_in[response_id] = lane
        if len(self._made_in) > MAX_RESPONSES:
            self._made_in.popitem(last=False)

    async def _failed(self, request: Create) -> None:
        """What a lane failed to go on from is forgotten, and the client sends the whole conversation.

        What another lane has made is not taken from it.
        """
        parent = request.parent
        if parent is not None and self._made_in.get(parent, _NO_LANE) == request.lane:
            await self._store.forget(parent)

    async def _say(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})


_NO_LANE = ""
"""No lane's name: names have a character at least."""


def _limit(lane: str | None, reached: str, instead: str) -> FrameError:
    told = f"{reached}. Wait until one has ended, or {instead}."
    return FrameError(SocketLimitReached(told, param="stream_id"), lane)
