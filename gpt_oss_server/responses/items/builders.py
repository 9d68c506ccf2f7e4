"""One builder per kind of output item: text in, the item and its events out.

A builder knows the shape of its item and of its events. It never sees output indices or sequence numbers:
the stream stamps them on what comes out of here. The item it closes with IS the final response's item.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from gpt_oss_server.turns.logprobs import Scores
from inference.engine import TokenLogprob
from tools.tool import ToolOutput

Item = dict[str, Any]
Event = dict[str, Any]


class ItemBuilder(Protocol):
    """The life of one output item: opened once, any number of deltas, closed once."""

    @property
    def id(self) -> str: ...

    @property
    def recipient(self) -> tuple[str, str] | None:
        """(call_id, Harmony recipient) of a call, so that its output can be matched with it."""
        ...

    def open(self) -> tuple[Item, list[Event]]:
        """The item as it is added, and the events that follow its addition."""
        ...

    def delta(self, text: str) -> tuple[Event, ...]:
        """The events that tell of more text: usually one, none where the item does not stream it."""
        ...

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        """The events that precede the item's end, and the finished item."""
        ...


class ToolItemBuilder(ItemBuilder, Protocol):
    """The item of a call that runs here: after its text it is called, then answered."""

    def called(self, text: str) -> list[Event]: ...

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]: ...


class TextItemBuilder(ABC):
    """What messages and reasoning share: one content part that text flows into."""

    delta_type: str
    done_type: str

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.recipient: tuple[str, str] | None = None

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


class MessageBuilder(TextItemBuilder):
    delta_type = "response.output_text.delta"
    done_type = "response.output_text.done"

    def __init__(self, item_id: str, phase: str, scores: Scores | None = None) -> None:
        super().__init__(item_id)
        self._phase = phase
        self._scores = scores
        self._fed = 0  # characters of the model's text
        self._due: list[Item] = []  # log-probabilities that go out with the next text
        self._told: list[Item] = []

    def score(self, scored: TokenLogprob) -> None:
        """How likely the next token of the text was; its text comes after this."""
        if self._scores is not None:
            self._scores.feed(scored, self._fed)

    def item(self, content: list[Item], status: str) -> Item:
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
            "phase": self._phase,
        }

    def part(self, text: str) -> Item:
        return {"type": "output_text", "annotations": [], "logprobs": list(self._told), "text": text}

    def delta(self, text: str) -> tuple[Event, ...]:
        if self._scores is not None:
            self._take(text)
        return (self._show(text),)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        self._told += self._due
        events, item = super().close(text, complete=complete)
        events[0]["logprobs"] = list(self._told)
        return events, item

    def _take(self, text: str) -> None:
        """The model has said this; what is shown of it may come later, and in other words."""
        self._fed += len(text)
        if self._scores is not None:
            self._due += self._scores.due(self._fed)

    def _show(self, text: str) -> Event:
        due, self._due = self._due, []
        self._told += due
        return {"type": self.delta_type, "content_index": 0, "delta": text, "logprobs": due}
