"""WebSocket mode of the Responses API: one connection, whose lanes run concurrently.

Takes an accepted WebSocket and the service. Sends the events of a stream over HTTP, each as one text frame.
Requests with the same `stream_id`, or without one, form a lane, which runs them one by one in order of
arrival. Unstored responses are remembered while the connection lives. If the client disconnects, all runs are
cancelled; if the server stops, all accepted requests finish first.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import Message, Receive, Send

from gpt_oss_server.apis.responses.run import RefusedRun, Run
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.apis.responses.socket.frames import (
    Create,
    FrameError,
    Steer,
    error_text,
    event_text,
    read_frame,
)
from gpt_oss_server.apis.responses.socket.steering import Steering
from gpt_oss_server.apis.responses.stream import Event
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.caller.record import note_refusal, part_of_connection
from gpt_oss_server.errors import ApiError, InvalidApiKey, SocketLimitReached
from gpt_oss_server.http.connections.sub_protocols import HOLDER, IDLE, IDLE_SINCE, SERVER_STOPS
from gpt_oss_server.http.large_work import LARGE_INPUT, in_thread
from gpt_oss_server.http.sse import pump
from gpt_oss_server.stores.memory.connection import MAX_RESPONSES, ConnectionStore

MAX_LANES = 64  # lanes with work; an idle lane costs nothing
MAX_WAITING = 64  # requests per lane
IDLE_SECONDS = 30 * 60.0  # without a request
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lane:
    waiting: deque[Create] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None


class SocketConnection:
    """Serve once; returns when the connection has ended."""

    def __init__(
        self,
        service: ResponsesService,
        caller: Caller,
        receive: Receive,
        send: Send,
        state: dict[str, Any] | None = None,
    ) -> None:
        """`state`: where the connection finds whose it is, and since when it has no work."""
        self._service = service
        self._caller = caller  # of the handshake; each request is admitted with the key as it is then
        self._receive = receive
        self._send = send
        keep = service.served.stores.of(caller.owner)
        self._store = ConnectionStore(keep.responses, keep.conversations)
        self._steering = Steering(service.served.ids)
        self._lanes: dict[str | None, _Lane] = {}  # the lanes with work
        # response id → the lane that created it
        self._lane_of: OrderedDict[str, str | None] = OrderedDict()
        self._state = {} if state is None else state
        self._state[HOLDER] = caller.owner
        self._state[IDLE_SINCE] = time.monotonic()

    async def serve(self) -> None:
        try:
            while (message := await self._next())["type"] != "websocket.disconnect":
                await self._take(message)
            if message.get("code") == SERVER_STOPS:
                await asyncio.gather(*self._work())
                await self._send({"type": "websocket.close", "code": SERVER_STOPS})
        except OSError:
            _log.debug("A client disconnected while a frame was sent.")
        finally:
            for work in self._work():
                work.cancel()
            await asyncio.gather(*self._work(), return_exceptions=True)
            await self._store.close()

    async def _next(self) -> Message:
        """The next message. A connection without one for long, and without work, ends."""
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    return await self._receive()
            except TimeoutError:
                if not self._lanes:
                    reason = f"No request came for {IDLE_SECONDS / 60:.0f} minutes."
                    await self._send({"type": "websocket.close", "code": IDLE, "reason": reason})
                    return {"type": "websocket.disconnect", "code": IDLE}

    def _work(self) -> list[asyncio.Task[None]]:
        return [lane.work for lane in self._lanes.values() if lane.work is not None]

    async def _take(self, message: Message) -> None:
        text: str | None = message.get("text")
        size = len(text or message.get("bytes") or "")

        def read() -> Create | Steer:
            return read_frame(message.get("bytes", b"") if text is None else text.encode(), size)

        try:
            frame = read() if size <= LARGE_INPUT else await in_thread(size, read)
            if isinstance(frame, Steer):
                await self._send_text(self._steering.offer(frame, known=frame.target in self._lane_of))
            else:
                self._enqueue(frame)
        except FrameError as wrong:
            await self._send_text(error_text(wrong.error, wrong.lane))

    def _enqueue(self, request: Create) -> None:
        name = request.lane
        lane = self._lanes.get(name)
        if lane is None and len(self._lanes) >= MAX_LANES:
            raise _limit(name, f"{MAX_LANES} lanes of this connection are at work", "open another connection")
        if lane is None:
            lane = self._lanes[name] = _Lane()
            self._state[IDLE_SINCE] = None
            lane.work = asyncio.create_task(self._run_lane(name, lane))
        elif len(lane.waiting) >= MAX_WAITING:
            raise _limit(name, f"{MAX_WAITING} requests wait in this lane", "use another `stream_id`")
        lane.waiting.append(request)

    async def _run_lane(self, name: str | None, lane: _Lane) -> None:
        try:
            while lane.waiting:
                more = await self._answer(self._steering.joined(lane.waiting.popleft()))
                if more is not None:  # it goes on from the response before any other request
                    lane.waiting.appendleft(more)
        except OSError:
            _log.debug("A client disconnected during a response.")  # `serve` sees it too, and ends all lanes
        finally:
            del self._lanes[name]
            if not self._lanes:
                self._state[IDLE_SINCE] = time.monotonic()

    async def _answer(self, request: Create) -> Create | None:
        """Returns the request that goes on from the response, if its client steered it."""
        with part_of_connection("response.create"):
            try:
                caller = await self._admitted(request)
            except ApiError as error:
                await self._refuse(request, error)
                return None
            try:
                return await self._run(request, caller)
            finally:
                if caller.admission is not None:
                    caller.admission.close()

    async def _admitted(self, request: Create) -> Caller:
        """Counts the request, with the key as it is now: a connection may be open for days."""
        served = self._service.served
        caller = replace(self._caller, arrived=request.arrived, body_size=request.size)
        access = served.keys.current(caller.access)
        if access is None:
            raise InvalidApiKey("The API key of this connection is no longer one of this server's.")
        if not served.keys.is_open:  # else it works for its connection
            caller = caller.with_key(access)
        if not served.limiter.is_needed:
            return caller
        return replace(caller, admission=await served.limiter.admit(access))

    async def _refuse(self, request: Create, error: ApiError) -> None:
        note_refusal(error)
        for text in self._steering.refused(request, error) or [error_text(error, request.lane)]:
            await self._send_text(text)

    async def _run(self, request: Create, caller: Caller) -> Create | None:
        try:
            run = await self._service.start_streamed(
                caller, request.body, store=self._store, generates=request.generates
            )
        except ApiError as error:
            await self._forget_parent(request)
            await self._refuse(request, error)
            return None
        except Exception:
            # A defect of the server. As over HTTP, the log has the details and the client does not.
            _log.exception("A request over WebSocket failed.")
            await self._forget_parent(request)
            await self._refuse(request, ApiError("The server failed; its log says why."))
            return None
        self._remember(run.response["id"], request.lane)
        self._steering.begins(request, run)
        await self._stream(run, request.lane)
        if run.error is not None:
            await self._forget_parent(request)
        told, more = self._steering.ends(run)
        for text in told:
            await self._send_text(text)
        return more

    async def _stream(self, run: Run | RefusedRun, lane: str | None) -> None:
        async def write(batch: Sequence[Event]) -> None:
            for event in batch:
                await self._send_text(event_text(event, lane))

        async def beat() -> None:
            await write(run.still_in_progress())

        await pump(run.events(), write, beat, self._service.served.settings.keep_alive)

    def _remember(self, response_id: str, lane: str | None) -> None:
        self._lane_of[response_id] = lane
        if len(self._lane_of) > MAX_RESPONSES:
            self._lane_of.popitem(last=False)

    async def _forget_parent(self, request: Create) -> None:
        """Forget the response that a failed request continued: the client then sends the whole conversation.

        A response that another lane created stays.
        """
        parent = request.parent
        if parent is not None and (parent, request.lane) in self._lane_of.items():
            await self._store.forget(parent)

    async def _send_text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})


def _limit(lane: str | None, reached: str, instead: str) -> FrameError:
    message = f"{reached}. Wait until one has ended, or {instead}."
    return FrameError(SocketLimitReached(message, param="stream_id"), lane)
