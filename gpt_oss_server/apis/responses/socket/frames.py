"""The frames of WebSocket mode: parses requests, and renders events and errors.

Takes the texts that a client sends, and events or errors. Returns requests with their lane, and JSON texts.
It must not know connections, and runs nothing.
"""

import re
import time
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.errors import ApiError, InvalidJson, InvalidRequest, NotFound, UnsupportedField
from gpt_oss_server.http.body import decode_json

_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}\Z")
# Fields of the transport, not of the response.
_ENVELOPE = ("type", "stream_id", "generate", "stream", "stream_options", "background")


@dataclass(frozen=True, slots=True)
class Steer:
    """A request to add input to a running response."""

    target: str  # the response
    input: object
    id: str = ""  # once it is accepted
    messages: tuple[dict[str, Any], ...] = ()  # likewise


@dataclass(frozen=True, slots=True)
class Create:
    """A request for a response."""

    body: dict[str, Any]
    lane: str | None  # the `stream_id`, which every event of the response echoes
    generates: bool  # False: the engine only reads the prompt, and later requests can continue it
    size: int = 0  # characters of the frame
    steers: tuple[Steer, ...] = ()  # whose input it has
    arrived: float = field(default_factory=time.monotonic)

    @property
    def parent(self) -> str | None:
        value = self.body.get("previous_response_id")
        return value if isinstance(value, str) else None


class FrameError(Exception):
    """A frame that is not a valid request, with its lane if that could be read."""

    def __init__(self, error: ApiError, lane: str | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.lane = lane


def read_frame(text: bytes, size: int = 0) -> Create | Steer:
    lane: str | None = None
    try:
        frame = decode_json(text)
        if not isinstance(frame, dict):
            raise InvalidJson(
                'A frame must be a JSON object, e.g. {"type": "response.create", "input": "Hi"}.'
            )
        lane = _lane(frame)
        match frame.get("type"):
            case "response.create":
                return _create(frame, lane, size)
            case "response.steer":
                return Steer(str(frame.get("previous_response_id", "")), frame.get("input", ""))
            case other:
                raise InvalidRequest(
                    f"A frame's `type` must be 'response.create', not {other!r}.", param="type"
                )
    except ApiError as error:
        raise FrameError(error, lane) from None


def _lane(frame: dict[str, Any]) -> str | None:
    lane = frame.get("stream_id")
    if lane is None or (isinstance(lane, str) and _STREAM_ID.match(lane)):
        return lane
    raise InvalidRequest.at(
        "stream_id", "must have 1 to 256 characters out of A-Z, a-z, 0-9, `_`, `.` and `-`."
    )


def _create(frame: dict[str, Any], lane: str | None, size: int) -> Create:
    if frame.get("background"):
        raise UnsupportedField.at(
            "background", "is not served over WebSocket. Leave it out, or send the request over HTTP."
        )
    generate = frame.get("generate")
    if generate is not None and not isinstance(generate, bool):
        raise InvalidRequest.at("generate", "must be true or false.")
    body = {name: value for name, value in frame.items() if name not in _ENVELOPE}
    return Create(body, lane, generate is not False, size)


def event_text(event: dict[str, Any], lane: str | None) -> str:
    return to_json(event if lane is None else {**event, "stream_id": lane}).decode()


def error_text(error: ApiError, lane: str | None) -> str:
    # Over HTTP, 404 is about the path. A connection's path exists, so here the request is invalid.
    status = 400 if isinstance(error, NotFound) else error.status
    return event_text({"type": "error", "status": status, **error.body()}, lane)
