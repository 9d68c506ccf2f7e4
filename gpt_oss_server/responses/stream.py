"""Turn events to the events of a response: the one place that assigns indices and sequence numbers.

In: turn events, in batches, then exactly one `finish`. Out: batches of event dicts. The final response is
what the builders accumulated; nothing is parsed or built twice. `finish` closes what is open, but for a call
of the client's, and always ends in exactly one terminal event, whatever happened before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, assert_never, cast

from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.events import ClosedBy, Header, MessageFinished, MessageStarted, TextDelta
from gpt_oss_server.responses.items.builders import ItemBuilder, MessageBuilder, ToolItemBuilder
from gpt_oss_server.responses.items.client_builders import ApplyPatchBuilder, ClientCall, HostedSearchBuilder
from gpt_oss_server.responses.items.reasoning import ReasoningBuilder
from gpt_oss_server.responses.items.routes import ItemRoute
from gpt_oss_server.responses.items.tool_builders import McpApprovalBuilder
from gpt_oss_server.turns.events import TokenScored, ToolFinished, ToolStarted, TurnEvent, TurnFinished
from inference.engine import TokenLogprob

Event = dict[str, Any]
Status = Literal["completed", "incomplete", "failed", "cancelled"]
# The API has no event of its own for a response that was cancelled.
_TERMINAL_EVENTS: dict[Status, str] = {"cancelled": "response.incomplete"}


class ResponseStream:
    """The stream of one response. `response` is its object, kept current."""

    def __init__(self, response: dict[str, Any], route: ItemRoute, clock: Callable[[], float]) -> None:
        self.response = response
        self.recipients: dict[str, str] = {}  # call_id → recipient of the calls made here
        self.results: dict[str, str] = {}  # item id → what the model read of a call made here
        self.approvals: dict[str, tuple[str, str]] = {}  # mcp_approval_request id → (recipient, arguments)
        self._route = route
        self._clock = clock
        self._sequence = 0
        self._pending: Header | None = None  # started, but without text so far
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
        """A sign of life for clients to which only events are one; none before the first or after the end."""
        return [self._lifecycle("response.in_progress")] if self._sequence and not self._ended else []

    def add_listing(self, item: dict[str, Any]) -> list[Event]:
        """An item that was made before the turn began: what an MCP server offers."""
        out: list[Event] = []
        out.append(self._stamp({"type": "response.output_item.added", "item": {**item, "tools": []}}))
        listed = "failed" if "error" in item else "completed"
        steps = [f"response.mcp_list_tools.{step}" for step in ("in_progress", listed)]
        out += [self._stamp({"type": step, "item_id": item["id"]}) for step in steps]
        out.append(self._stamp({"type": "response.output_item.done", "item": item}))
        self.response["output"].append(item)
        return out

    def add_compaction(self, item: dict[str, Any]) -> list[Event]:
        """Told when it is made: one that fails, or that nobody waits for, is no item."""
        added = self._stamp({"type": "response.output_item.added", "item": {**item, "encrypted_content": ""}})
        compacting = self._stamp({"type": "response.compaction.compacting", "item_id": item["id"]})
        done = self._stamp({"type": "response.output_item.done", "item": item})
        self.response["output"].append(item)
        return [added, compacting, done]

    def feed(self, events: Sequence[TurnEvent]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):  # by far the most frequent
                if self._open is None:
                    self._begin(out)
                self._delta(event.text, out)
            elif isinstance(event, MessageStarted):
                self._pending = event.header
            elif isinstance(event, MessageFinished):
                self._end(event, out)
            elif isinstance(event, ToolStarted):
                self._call(event, out)
            elif isinstance(event, ToolFinished):
                self._answer(event, out)
            elif isinstance(event, TokenScored):
                self._score(event.logprob, out)
            elif not isinstance(event, TurnFinished):  # what the end means, the run decides
                assert_never(event)
        return out

    def finish(
        self,
        status: Status,
        *,
        usage: dict[str, Any] | None = None,
        reason: str | None = None,
        error: ApiError | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> list[Event]:
        """Close what is open and end the response."""
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
            response["incomplete_details"] = {"reason": reason}
        if error is not None:
            response["error"] = _told(error)
        out.append(self._lifecycle(_TERMINAL_EVENTS.get(status, f"response.{status}")))
        return out

    def failed_instead(self, end: Event, error: ApiError) -> Event:
        """The terminal event in place of `end`, which is not told: what it says was not kept."""
        self.response.update(status="failed", error=_told(error), completed_at=None)
        return {**end, "type": "response.failed", "response": {**end["response"], **self.response}}

    def _begin(self, out: list[Event]) -> None:
        """Add the item of the pending message. It waits for its first text: empty reasoning is no item."""
        header = self._pending or Header("final")
        self._pending = None
        self._open = builder = self._route(header)
        self._recipient = header.recipient or ""
        if builder.recipient is not None:
            call_id, recipient = builder.recipient
            self.recipients[call_id] = self.recipients[builder.id] = recipient
        if not isinstance(builder, McpApprovalBuilder | ApplyPatchBuilder):
            self._add(builder, out)

    def _add(self, builder: ItemBuilder, out: list[Event]) -> None:
        item, events = builder.open()
        out.append(self._stamp({"type": "response.output_item.added", "item": item}))
        self._emit(events, out)

    def _score(self, scored: TokenLogprob, out: list[Event]) -> None:
        if self._open is None:  # its text follows, if only when a character is whole
            self._begin(out)
        if isinstance(self._open, MessageBuilder):
            self._open.score(scored)

    def _delta(self, text: str, out: list[Event]) -> None:
        builder = self._open
        assert builder is not None
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
                return  # an empty analysis or preamble tells nobody anything
            self._pending = event.header
            self._begin(out)
        if isinstance(self._open, ReasoningBuilder):
            self._open.ended(event)
        waits_for_answer = hasattr(self._open, "answered")
        # Cut off, it is the last, and only `finish` knows how it ended.
        if event.closed_by is not ClosedBy.TRUNCATED and not waits_for_answer:
            self._close(event.text, complete=True, out=out)

    def _call(self, event: ToolStarted, out: list[Event]) -> None:
        if self._open is None:  # a call without any text
            self._pending = event.header
            self._begin(out)
        self._emit(cast(ToolItemBuilder, self._open).called(event.arguments), out)

    def _answer(self, event: ToolFinished, out: list[Event]) -> None:
        builder = cast(ToolItemBuilder, self._open)
        events, item = builder.answered("".join(self._text), event.output)
        self.results[builder.id] = event.output.text
        self._finish_item(events, item, out)
        if isinstance(builder, HostedSearchBuilder):
            self._add_whole(builder.found(event.output), out)

    def _add_whole(self, item: dict[str, Any], out: list[Event]) -> None:
        """An item that is there at once."""
        out.append(self._stamp({"type": "response.output_item.added", "item": item}))
        out.append(self._stamp({"type": "response.output_item.done", "item": item}))
        self.response["output"].append(item)

    def _close(self, text: str, *, complete: bool, out: list[Event]) -> None:
        builder = self._open
        assert builder is not None
        if isinstance(builder, McpApprovalBuilder):
            builder = self._open = builder if complete else builder.cut_off
            self._add(builder, out)
            self._emit(builder.delta(text) if text else (), out)
        if isinstance(builder, ApplyPatchBuilder):
            builder.read(text)
            self._add(builder, out)
        events, item = builder.close(text, complete=complete)
        if not complete and isinstance(builder, ClientCall) and builder.recipient is not None:
            self._leave(item)
            return
        if item["type"] == "mcp_approval_request" and complete:
            self.approvals[item["id"]] = (self._recipient, text)
        self._finish_item(events, item, out)

    def _finish_item(self, events: list[Event], item: dict[str, Any], out: list[Event]) -> None:
        self._emit(events, out)
        out.append(self._stamp({"type": "response.output_item.done", "item": item}))
        self.response["output"].append(item)
        self._open = None
        self._text = []

    def _leave(self, item: dict[str, Any]) -> None:
        """A call of the client's that was cut off is in the output; told as done it would be made."""
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
        # Shallow: items are finished when they enter the output, and no other value is changed in place.
        snapshot = {**self.response, "output": list(self.response["output"])}
        event = {"type": kind, "sequence_number": self._sequence, "response": snapshot}
        self._sequence += 1
        return event


def _told(error: ApiError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message}
