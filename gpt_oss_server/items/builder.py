"""The contract of output items: the methods that a response's stream calls on each item's builder.

A builder takes turn events, one method each, and returns its item and the item's events. The item that it
closes with is the item of the final response. It must not know output indices or sequence numbers: the stream
adds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpt_oss_server.harmony.events import MessageFinished
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
