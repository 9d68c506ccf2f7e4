"""The contract of output items: the methods that a response's stream calls on each item's builder.

A builder takes turn events, one method each, and returns its item and the item's events. The item that it
closes with is the item of the final response. It must not know output indices or sequence numbers: the stream
adds them. Below the contract are the bases that several kinds share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpt_oss_server.content.tools import ClientTool
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.ids import Ids
from gpt_oss_server.json_values import read_json_text
from inference.engine import TokenLogprob
from tools.tool import ToolOutput

Item = dict[str, Any]
Event = dict[str, Any]
EventTexts = Mapping[str, str]
"""For the API reference: each type of event, and when it is sent."""


class ItemBuilder(ABC):
    """The life of one output item.

    The stream calls `open` once, `delta` for each piece of text, `ended` when the message has ended, and then
    either `close`, or, for a call that this server runs, `called` and `answered`. A call that is interrupted
    before its result is closed with `complete=False`. Only `open` and `close` have no default.
    """

    about: ClassVar[str] = ""
    """What the item is, for the API reference. A class that makes no item of its own has none."""
    about_events: ClassVar[EventTexts] = {}
    """The item's own events."""
    added_at_end: ClassVar[bool] = False
    """Whether the item is added when its text has ended, instead of at the first text. See `whole`."""
    runs_here: ClassVar[bool] = False
    """Whether the item is a call that this server runs: it closes with the result."""
    client_runs: ClassVar[bool] = False
    """Whether the item is a call that the client runs. Some clients run each one that is done."""
    requests_approval: ClassVar[bool] = False
    """Whether a complete item requests the client's approval of the call that it shows."""

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.recipient: tuple[str, str] | None = None
        """(call_id, Harmony recipient) of a call that the client runs. The call's output is matched to it."""
        self.waits: tuple[str, str] | None = None
        """(call_id, arguments) of a call that ran here and goes on once the client has made calls for it."""

    @abstractmethod
    def open(self) -> tuple[Item, list[Event]]:
        """The item in its initial state, and the events that follow its addition."""

    def delta(self, text: str) -> Sequence[Event]:
        """The events for more text: usually one; none if the item does not stream its text."""
        return ()

    def score(self, scored: TokenLogprob) -> None:  # noqa: B027 – optional
        """Takes the log-probability of the token whose text comes next. Most items show none."""

    def ended(self, message: MessageFinished) -> None:  # noqa: B027 – optional too
        """Takes the message once it has ended and its tokens are known."""

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        """The builder for an item that is `added_at_end`; the whole text may call for a different one."""
        return self

    def called(self, arguments: str) -> list[Event]:
        """The events that announce that the call now runs here."""
        return []

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        """The events before the end of a call that ran here, and the finished item."""
        return self.close(text, complete=not output.failed)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        """Builders of the items that follow the call's own, made from the same result."""
        return ()

    @abstractmethod
    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        """The events before the item's end, and the finished item."""


class WholeItem(ItemBuilder):
    """An item that is complete from the start."""

    def __init__(self, item: Item) -> None:
        super().__init__(item["id"])
        self._item = item

    def open(self) -> tuple[Item, list[Event]]:
        return self._item, []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [], self._item


class TextItem(ItemBuilder):
    """Messages and reasoning: one content part receives all text."""

    about_events: ClassVar[EventTexts] = {
        "response.content_part.added": "The part that receives the item's text begins.",
        "response.content_part.done": "The part is complete.",
    }
    delta_type: str
    done_type: str

    @abstractmethod
    def item(self, content: list[Item], status: str) -> Item:
        """The item with this content."""

    @abstractmethod
    def part(self, text: str) -> Item:
        """The content part with this text."""

    def open(self) -> tuple[Item, list[Event]]:
        added = {"type": "response.content_part.added", "content_index": 0, "part": self.part("")}
        return self.item([], "in_progress"), [added]

    def delta(self, text: str) -> tuple[Event, ...]:
        return ({"type": self.delta_type, "content_index": 0, "delta": text},)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        part = self.part(text)
        events: list[Event] = [
            {"type": self.done_type, "content_index": 0, "text": text},
            {"type": "response.content_part.done", "content_index": 0, "part": part},
        ]
        return events, self.item([part], "completed" if complete else "incomplete")


class ServerCall(ItemBuilder):
    """A call that this server runs, whose item tells its steps in events of their own."""

    runs_here = True
    kind: ClassVar[str]
    runs: ClassVar[str | None] = None  # the step in which the tool works
    written: ClassVar[tuple[str, str] | None] = None  # what streams the model's text: events, and its key
    cut_off: ClassVar[str] = "incomplete"  # the status of a call without a result

    def __init__(self, item_id: str) -> None:
        super().__init__(item_id)
        self._called = False

    @abstractmethod
    def item(self, status: str, text: str, output: ToolOutput | None = None) -> Item:
        """The item of a call with these arguments, and with its result once there is one."""

    def open(self) -> tuple[Item, list[Event]]:
        return self.item("in_progress", ""), [self.step("in_progress")]

    def delta(self, text: str) -> tuple[Event, ...]:
        return () if self.written is None else ({"type": f"{self.written[0]}.delta", "delta": text},)

    def called(self, arguments: str) -> list[Event]:
        self._called = True
        return [*self._done(arguments), *([] if self.runs is None else [self.step(self.runs)])]

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        return [self.step("completed")], self.item("failed" if output.failed else "completed", text, output)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [] if self._called else self._done(text), self.item(self.cut_off, text)

    def _done(self, text: str) -> list[Event]:
        return [] if self.written is None else [{"type": f"{self.written[0]}.done", self.written[1]: text}]

    def step(self, name: str) -> Event:
        return {"type": f"response.{self.kind}.{name}"}


class ClientCall(ItemBuilder):
    """A call that the client runs."""

    client_runs = True
    prefix: ClassVar[str]  # of the ids of its items

    def __init__(self, ids: Ids, tool: ClientTool) -> None:
        super().__init__(ids(self.prefix))
        self._call_id: str | None = ids("call")
        self.recipient = (self._call_id, tool.recipient)


class WrittenCall(ClientCall):
    """A call whose item holds the model's text and streams it."""

    kind: ClassVar[str]
    body: ClassVar[str]  # the item's key of that text
    event: ClassVar[str]

    def __init__(self, ids: Ids, tool: ClientTool) -> None:
        super().__init__(ids, tool)
        self._called = {"name": tool.name, **({"namespace": tool.namespace} if tool.namespace else {})}

    def _item(self, text: str, status: str) -> Item:
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            self.body: text,
            "call_id": self._call_id,
            **self._called,
        }

    def open(self) -> tuple[Item, list[Event]]:
        return self._item("", "in_progress"), []

    def delta(self, text: str) -> tuple[Event, ...]:
        return ({"type": f"{self.event}.delta", "delta": text},)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [self._done(text)], self._item(text, "completed" if complete else "incomplete")

    def _done(self, text: str) -> Event:
        return {"type": f"{self.event}.done", self.body: text}


class ShapedCall(ClientCall):
    """A call whose JSON arguments become the item's action, in a shape that the API fixes; it streams none.

    Where the arguments are not valid (the engine may enforce no grammar), the item still has the shape and is
    incomplete.
    """

    @abstractmethod
    def item(self, arguments: Item, status: str) -> Item:
        """The item with the valid ones of these arguments."""

    @abstractmethod
    def fits(self, arguments: Item) -> bool:
        """Whether the client can run a call with these arguments."""

    def events(self, item: Item) -> list[Event]:
        return []

    def open(self) -> tuple[Item, list[Event]]:
        return self.item({}, "in_progress"), []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        arguments = json_object(text)
        item = self.item(arguments, "completed" if complete and self.fits(arguments) else "incomplete")
        return self.events(item), item


def json_object(text: str) -> Item:
    """The object that the model wrote; an empty one for any other text."""
    try:
        value = read_json_text(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def strings(value: Any) -> list[str]:
    return list(value) if isinstance(value, list) and all(isinstance(entry, str) for entry in value) else []


def typed(arguments: Item, **kinds: type) -> Item:
    """The arguments that are present and of the right type."""
    return {key: arguments[key] for key, kind in kinds.items() if type(arguments.get(key)) is kind}
