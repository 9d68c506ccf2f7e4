"""Steering: what a client tells a response of its connection that is still running.

Takes `response.steer` frames, and the events of the response. Accepts input, ends the response after the item
that it is writing, and returns the request of the response that goes on with the input. If the response ends
with calls that its client answers, the input waits for the request with their outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpt_oss_server.apis.responses.run import RefusedRun, Run
from gpt_oss_server.apis.responses.socket.frames import Create, Steer, event_text
from gpt_oss_server.apis.responses.stream import Event
from gpt_oss_server.content.parts import INPUT_PARTS, as_items
from gpt_oss_server.errors import ApiError, InvalidRequest
from gpt_oss_server.ids import Ids

MOST_WAITING = 16  # of a response
_FIELDS = ("type", "role", "content")
# Items of calls that a client answers: the type of the answer, and what of the call it repeats.
_ANSWERS = {
    "function_call": ("function_call_output", ("call_id", "name")),
    "custom_tool_call": ("custom_tool_call_output", ("call_id",)),
    "local_shell_call": ("local_shell_call_output", ("call_id",)),
    "shell_call": ("shell_call_output", ("call_id",)),
    "apply_patch_call": ("apply_patch_call_output", ("call_id",)),
    "tool_search_call": ("tool_search_output", ("call_id", "execution")),
}
_ANSWER_TYPES = {"mcp_approval_response", *(kind for kind, _ in _ANSWERS.values())}


@dataclass(slots=True)
class Steered:
    """A response, and the input that waits for its end."""

    request: Create
    run: Run | RefusedRun | None = None  # None: it has ended
    waiting: list[Steer] = field(default_factory=list)


class Steering:
    """Of one connection. The texts that it returns are frames."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._responses: dict[str, Steered] = {}
        self._sent = 0

    def begins(self, request: Create, run: Run | RefusedRun) -> None:
        self._responses[run.response["id"]] = steered = Steered(request, run)
        if isinstance(run, Run):
            run.is_steered = partial(_ends_item, run, steered)

    def offer(self, steer: Steer, *, known: bool) -> str:
        """Accepts the input, or states why not. `known`: the response was of this connection."""
        steered = self._responses.get(steer.target)
        if steered is None or steered.run is None:
            past = "response_already_completed", "has ended. Send the input with the next response.create."
            missing = "response_not_found", "is none of this connection."
            return self._failed(steer, *(past if known else missing))
        body, lane, run = steered.request.body, steered.request.lane, steered.run
        if not isinstance(run, Run) or body.get("conversation") or body.get("context_management"):
            why = "belongs to a conversation, compacts itself or was refused, so it cannot be steered."
            return self._failed(steer, "steering_not_supported", why, lane)
        if len(steered.waiting) >= MOST_WAITING:
            return self._failed(steer, "too_many_pending_steers", "has as much input as may wait.", lane)
        if run.ending:
            return self._failed(steer, "response_not_active", "is ending.", lane)
        try:
            steer = replace(steer, id=self._ids("steer"), messages=_messages(steer.input))
        except ApiError as error:
            return self._failed(steer, "invalid_input", error.message, lane)
        steered.waiting.append(steer)
        return self._event("accepted", steer, lane)

    def ends(self, run: Run | RefusedRun) -> tuple[list[str], Create | None]:
        """What the client is told, and the request that goes on from the response."""
        steered = self._responses.pop(run.response["id"], None)
        if steered is None or not steered.waiting:
            return [], None
        lane = steered.request.lane
        if run.error is not None or run.response["status"] == "failed":
            why = "has failed, so nothing goes on from it."
            return self._given_back(steered.waiting, why, lane), None
        if required := _required(run):
            steered.run = None
            self._responses[run.response["id"]] = steered
            more: Event = {"reason": "waiting_for_required_input", "required_input": required}
            return [self._event("pending", steer, lane, **more) for steer in steered.waiting], None
        own = {name: value for name, value in steered.request.body.items() if name != "request_id"}
        body = {**own, "input": [], "previous_response_id": run.response["id"]}
        return [], _with(replace(steered.request, body=body), steered.waiting)

    def joined(self, request: Create) -> Create:
        """The request, with the input that waited for it."""
        steered = self._responses.get(request.parent or "")
        if steered is None or steered.run is not None or steered.request.lane != request.lane:
            return request
        del self._responses[request.parent or ""]
        return _with(request, steered.waiting)

    def refused(self, request: Create, error: ApiError) -> list[str]:
        """Gives back the input of a request that could not begin."""
        return self._given_back(request.steers, error.message, request.lane)

    def _given_back(self, steers: Sequence[Steer], why: str, lane: str | None) -> list[str]:
        return [self._failed(steer, "successor_creation_failed", why, lane) for steer in steers]

    def _failed(self, steer: Steer, code: str, why: str, lane: str | None = None) -> str:
        sentence = why if code in ("invalid_input", "successor_creation_failed") else f"The response {why}"
        error = {"type": "invalid_request_error", "code": code, "message": sentence}
        return self._event("failed", steer, lane, {"input": steer.input}, error=error)

    def _event(
        self, kind: str, steer: Steer, lane: str | None, extra: Event | None = None, **more: Any
    ) -> str:
        names = {"previous_response_id": steer.target, **({"id": steer.id} if steer.id else {})}
        event = {"type": f"response.steer.{kind}", "sequence_number": self._sent, **more}
        self._sent += 1
        return event_text({**event, "steer": {**names, **(extra or {})}}, lane)


def _ends_item(run: Run, steered: Steered, batch: Sequence[Event]) -> bool:
    """Whether an item has ended while input waits, and no call waits for its client."""
    ended = any(event["type"] == "response.output_item.done" for event in batch)
    return ended and bool(steered.waiting) and not _required(run)


def _with(request: Create, steers: Sequence[Steer]) -> Create:
    """The request, with the input before its own, but after answers: these follow their calls."""
    own = as_items(request.body.get("input"))
    told = [message for steer in steers for message in steer.messages]
    answers = [item for item in own if isinstance(item, dict) and item.get("type") in _ANSWER_TYPES]
    others = [item for item in own if item not in answers]
    return replace(request, body={**request.body, "input": [*answers, *told, *others]}, steers=tuple(steers))


def _required(run: Run | RefusedRun) -> list[Event]:
    """The answers that a client owes the response, without what it answers."""
    stubs = []
    for item in run.response["output"]:
        if item["type"] == "mcp_approval_request":
            stubs.append({"type": "mcp_approval_response", "approval_request_id": item["id"]})
        elif item["type"] in _ANSWERS and not _ran_here(item):
            kind, keys = _ANSWERS[item["type"]]
            stubs.append({"type": kind, **{key: item[key] for key in keys}})
    return stubs


def _ran_here(item: Event) -> bool:
    environment = item.get("environment") or {}
    return item.get("execution") == "server" or environment.get("type") == "container_reference"


def _messages(given: object) -> tuple[Event, ...]:
    """The user's messages. Raises a 400 for anything else."""
    if isinstance(given, str) and given:
        return ({"type": "message", "role": "user", "content": given},)
    if not isinstance(given, list) or not given:
        raise InvalidRequest.at("input", "must be a text, or messages of the user.")
    for index, message in enumerate(given):
        at = f"input[{index}]"
        if not isinstance(message, dict) or message.get("role") != "user" or not {*message} <= {*_FIELDS}:
            raise InvalidRequest.at(at, f"must be a message of the user, with {', '.join(_FIELDS)} alone.")
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        known = all(isinstance(part, dict) and part.get("type") in INPUT_PARTS for part in parts)
        is_whole = bool(content) and isinstance(content, str | list) and known
        if message.get("type", "message") != "message" or not is_whole:
            raise InvalidRequest.at(f"{at}.content", f"must be a text, or parts of {', '.join(INPUT_PARTS)}.")
    return tuple(given)
