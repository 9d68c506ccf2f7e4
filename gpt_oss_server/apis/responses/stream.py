"""Converts turn events into a response's events: the one place that assigns indices and sequence numbers.

Takes batches of turn events, then exactly one `finish`. Returns batches of event dicts. Each message becomes
an item; its builder follows the contract in `items/builder`, and the final response holds the items that the
builders closed with. `finish` closes the open item and emits exactly one terminal event.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, assert_never

from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.events import ClosedBy, Header, MessageFinished, MessageStarted, TextDelta
from gpt_oss_server.items.builder import Event, Item, ItemBuilder
from gpt_oss_server.turns.events import TokenScored, ToolFinished, ToolStarted, TurnEvent, TurnFinished

__all__ = ["Event", "ResponseStream", "Status"]

Status = Literal["completed", "incomplete", "failed", "cancelled"]
EVENTS = {
    "response.created": "The response exists.",
    "response.queued": "A background response waits for its turn.",
    "response.in_progress": "The model begins; repeated as a sign of life in a long silence.",
    "response.output_item.added": "An item begins.",
    "response.output_item.done": "The item is complete, or was cut off: its `status` states which.",
    "response.completed": "The last event of a response that is complete.",
    "response.incomplete": "The last event of a response that reached a limit or was cancelled.",
    "response.failed": "The last event of a response that failed: `response.error` has the reason.",
    "error": "The last event of a replay whose next events are no longer kept, or never came.",
}
"""The events that no item has, for the API reference: each type, and when it is sent."""
# The API has no event for a cancelled response.
_TERMINAL_EVENTS: dict[Status, str] = {"cancelled": "response.incomplete"}


def error_event(error: ApiError, number: int) -> Event:
    """Both the documented event and the form on which the official SDK raises an error."""
    body = error.body()
    return {**body["error"], "type": "error", "sequence_number": number, **body}


class ResponseStream:
    """The stream of one response. `response` is its object, kept current."""

    def __init__(
        self,
        response: dict[str, Any],
        route: Callable[[Header], ItemBuilder],
        clock: Callable[[], float],
        *,
        ends_cut_calls: bool = True,
    ) -> None:
        self.response = response
        self.recipients: dict[str, str] = {}  # call_id → recipient of the calls in this response
        self.results: dict[str, str] = {}  # item id → result that the model read of a call that ran here
        self.approvals: dict[str, tuple[str, str]] = {}  # call that waits → (recipient, arguments)
        self._route = route
        self._clock = clock
        self._ends_cut_calls = ends_cut_calls  # False: a client's call that was cut off has no `done` events
        self._sequence = 0
        self._pending: Header | None = None  # its message has started but has no text yet
        self._open: ItemBuilder | None = None
        self._recipient = ""  # of the open item
        self._text: list[str] = []
        self._ended = False

    @property
    def _index(self) -> int:
        """The open item's output index; finished items are in the output already."""
        return len(self.response["output"])

    def start(self) -> list[Event]:
        events = [self._lifecycle("response.created")]
        if self.response["status"] == "queued":
            events.append(self._lifecycle("response.queued"))
        self.response["status"] = "in_progress"
        return [*events, self._lifecycle("response.in_progress")]

    def still_in_progress(self) -> list[Event]:
        """A keep-alive for clients that notice only events; none before the first event or after the last."""
        return [self._lifecycle("response.in_progress")] if self._sequence and not self._ended else []

    def add(self, builder: ItemBuilder) -> list[Event]:
        """Add an item that is complete from the start and is no message of the turn."""
        out: list[Event] = []
        self._open = builder
        self._register(builder)
        self._emit_added(out)
        self._finish_item(*builder.close("", complete=True), out)
        return out

    def feed(self, events: Sequence[TurnEvent]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):  # by far the most frequent
                self._delta(event.text, out)
                continue
            match event:
                case MessageStarted():
                    self._pending = event.header
                case MessageFinished():
                    self._end(event, out)
                case ToolStarted():
                    self._call(event, out)
                case ToolFinished():
                    self._answer(event, out)
                case TokenScored():
                    self._builder(out).score(event.logprob)  # its text follows once its character is complete
                case TurnFinished():
                    pass  # the run decides what the end means
                case _:
                    assert_never(event)
        return out

    def finish(
        self,
        status: Status,
        *,
        usage: dict[str, Any] | None = None,
        reason: str | None = None,
        why: str | None = None,
        error: ApiError | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> list[Event]:
        """Close the open item and end the response. `why` explains the `reason` of an incomplete one."""
        if self._ended:
            raise RuntimeError("A response ends once.")
        self._ended = True
        out: list[Event] = []
        if self._open is not None:
            self._close("".join(self._text), complete=status == "completed", out=out)
        response = self.response
        response["status"] = status
        response["usage"] = usage
        if metadata is not None:
            response["metadata"] = metadata
        if status == "completed":
            response["completed_at"] = int(self._clock())
        if reason is not None:
            response["incomplete_details"] = {"reason": reason, **({"message": why} if why else {})}
        if error is not None:
            response["error"] = error.of_response()
        out.append(self._lifecycle(_TERMINAL_EVENTS.get(status, f"response.{status}")))
        return out

    def ended_as(self, end: Sequence[Event], stored: dict[str, Any]) -> list[Event]:
        """The last events, for a response that is stored already, or cannot be: they must state that."""
        self.response.update(stored)
        kind = _TERMINAL_EVENTS.get(stored["status"], f"response.{stored['status']}")
        return [*end[:-1], {**end[-1], "type": kind, "response": {**end[-1]["response"], **stored}}]

    def _builder(self, out: list[Event]) -> ItemBuilder:
        """The builder of the open item; begins one if none is open."""
        return self._open or self._begin(out)

    def _begin(self, out: list[Event]) -> ItemBuilder:
        """Begin the item of the pending message: at its first text, because empty reasoning is no item."""
        header = self._pending or Header("final")
        self._pending = None
        self._open = builder = self._route(header)
        self._recipient = header.recipient or ""
        self._register(builder)
        if not builder.added_at_end:
            self._emit_added(out)
        return builder

    def _register(self, builder: ItemBuilder) -> None:
        if builder.recipient is not None:
            call_id, recipient = builder.recipient
            self.recipients[call_id] = self.recipients[builder.id] = recipient

    def _emit_added(self, out: list[Event]) -> None:
        assert self._open is not None
        item, events = self._open.open()
        out.append(self._stamp({"type": "response.output_item.added", "item": item}))
        self._emit(events, out)

    def _delta(self, text: str, out: list[Event]) -> None:
        builder = self._open or self._begin(out)
        self._text.append(text)
        for event in builder.delta(text):
            event["sequence_number"] = self._sequence
            event["item_id"] = builder.id
            event["output_index"] = len(self.response["output"])
            self._sequence += 1
            out.append(event)

    def _end(self, event: MessageFinished, out: list[Event]) -> None:
        if self._open is None:
            self._pending = None
            is_empty_aside = event.header.recipient is None and event.header.channel != "final"
            if is_empty_aside:
                return  # an empty analysis or preamble becomes no item
            self._pending = event.header
        builder = self._builder(out)
        builder.ended(event)
        # A message that was cut off is the last, and only `finish` knows its status.
        if event.closed_by is not ClosedBy.TRUNCATED and not builder.runs_here:
            self._close(event.text, complete=True, out=out)

    def _call(self, event: ToolStarted, out: list[Event]) -> None:
        if self._open is None:  # a call without any text
            self._pending = event.header
        self._emit(self._builder(out).called(event.arguments), out)

    def _answer(self, event: ToolFinished, out: list[Event]) -> None:
        builder = self._builder(out)
        events, item = builder.answered("".join(self._text), event.output)
        if builder.waits is not None:
            self.approvals[builder.waits[0]] = (self._recipient, builder.waits[1])
        if builder.added_at_end:
            self._register(builder)
            self._emit_added(out)
        self.results[builder.id] = event.output.text
        self._finish_item(events, item, out)
        for further in builder.further(event.output):
            out += self.add(further)

    def _close(self, text: str, *, complete: bool, out: list[Event]) -> None:
        builder = self._open
        assert builder is not None
        if builder.added_at_end:
            builder = self._open = builder.whole(text, complete=complete)
            self._emit_added(out)
            self._emit(builder.delta(text) if text else (), out)
        events, item = builder.close(text, complete=complete)
        if builder.requests_approval and complete:
            self.approvals[item["id"]] = (self._recipient, text)
        if complete or self._ends_cut_calls or not builder.client_runs:
            self._finish_item(events, item, out)
        else:
            self._keep(item)

    def _finish_item(self, events: list[Event], item: Item, out: list[Event]) -> None:
        self._emit(events, out)
        out.append(self._stamp({"type": "response.output_item.done", "item": item}))
        self._keep(item)

    def _keep(self, item: Item) -> None:
        self.response["output"].append(item)
        self._open = None
        self._text = []

    def _emit(self, events: Iterable[Event], out: list[Event]) -> None:
        for event in events:
            event["item_id"] = self._open.id if self._open else None
            out.append(self._stamp(event))

    def _stamp(self, event: Event) -> Event:
        event["sequence_number"] = self._sequence
        event["output_index"] = self._index
        self._sequence += 1
        return event

    def _lifecycle(self, kind: str) -> Event:
        # A shallow copy suffices: items enter the output finished, and no other value changes in place.
        snapshot = {**self.response, "output": list(self.response["output"])}
        event = {"type": kind, "sequence_number": self._sequence, "response": snapshot}
        self._sequence += 1
        return event
