"""The contract of output items: what the stream of a response asks of the builder of each item.

Turn events come in, one method each; the item and its events go out. A builder knows the shape of its item
and of its events. It must not know output indices or sequence numbers: the stream stamps them. The item that
it closes with is the item of the final response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from gpt_oss_server.harmony.events import MessageFinished
from inference.engine import TokenLogprob
from tools.tool import ToolOutput

Item = dict[str, Any]
Event = dict[str, Any]


class ItemBuilder(ABC):
    """The life of one output item.

    The stream calls `open` once, `delta` for each piece of text, `ended` when the message has ended, and then
    either `close`, or, for a call that this server runs, `called` and `answered`. A call that is interrupted
    before its answer is closed with `complete=False`. Only `open` and `close` have no default.
    """

    added_at_end: ClassVar[bool] = False
    """Whether the item is added when its text has ended, and not at the first text. See `whole`."""
    runs_here: ClassVar[bool] = False
    """Whether the item is a call that this server runs: it closes with the answer."""
    done_if_cut_off: ClassVar[bool] = True
    """Whether an item that was cut off gets its `output_item.done`. Clients would run a call that does."""
    asks_approval: ClassVar[bool] = False
    """Whether a complete item asks the client to approve the call that it shows."""

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.recipient: tuple[str, str] | None = None
        """(call_id, Harmony recipient) of a call that the client runs, so that its output finds it."""

    @abstractmethod
    def open(self) -> tuple[Item, list[Event]]:
        """The item as it is added, and the events that follow its addition."""

    def delta(self, text: str) -> Sequence[Event]:
        """The events of more text: usually one; none where the item does not stream its text."""
        return ()

    def score(self, scored: TokenLogprob) -> None:  # noqa: B027 – a default, not a duty
        """Takes the log-probability of a token whose text comes next. Most items show none."""

    def ended(self, message: MessageFinished) -> None:  # noqa: B027 – likewise
        """Takes the message once it has ended and its tokens are known."""

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        """The builder of an item that is `added_at_end`: another one, where the whole text decides."""
        return self

    def called(self, arguments: str) -> list[Event]:
        """The events of a call that now runs here."""
        return []

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        """The events that precede the end of a call that ran here, and the finished item."""
        return self.close(text, complete=not output.failed)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        """Items that follow the call's own, made of the same answer."""
        return ()

    @abstractmethod
    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        """The events that precede the item's end, and the finished item."""


class WholeItem(ItemBuilder):
    """An item that is there at once."""

    def __init__(self, item: Item) -> None:
        super().__init__(item["id"])
        self._item = item

    def open(self) -> tuple[Item, list[Event]]:
        return self._item, []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [], self._item
