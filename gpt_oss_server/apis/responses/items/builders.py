"""Builders of text items: the base class of messages and reasoning, and the message.

Takes text and returns the item and its events; `items/builder` is the contract.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from gpt_oss_server.content.logprobs import Scores
from gpt_oss_server.items.builder import Event, EventTexts, Item, ItemBuilder
from inference.engine import TokenLogprob


class TextItemBuilder(ItemBuilder):
    """The common part of messages and reasoning: one content part that receives all text."""

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


class MessageBuilder(TextItemBuilder):
    about = "Text for the user. `phase` is `final_answer`, or `commentary` for a text that precedes calls."
    about_events: ClassVar[EventTexts] = {
        **TextItemBuilder.about_events,
        "response.output_text.delta": "More text of a message.",
        "response.output_text.done": "The text of a message is complete.",
    }
    delta_type = "response.output_text.delta"
    done_type = "response.output_text.done"

    def __init__(self, item_id: str, phase: str, scores: Scores | None = None) -> None:
        super().__init__(item_id)
        self._phase = phase
        self._scores = scores
        self._fed = 0  # characters of the model's text so far
        self._due: list[Item] = []  # log-probabilities to send with the next text
        self._sent: list[Item] = []

    def score(self, scored: TokenLogprob) -> None:
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
        return {"type": "output_text", "annotations": [], "logprobs": list(self._sent), "text": text}

    def delta(self, text: str) -> tuple[Event, ...]:
        if self._scores is not None:
            self._take(text)
        return (self._show(text),)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        self._sent += self._due
        events, item = super().close(text, complete=complete)
        events[0]["logprobs"] = list(self._sent)
        return events, item

    def _take(self, text: str) -> None:
        """Records text that the model wrote; the shown text may come later and differ."""
        self._fed += len(text)
        if self._scores is not None:
            self._due += self._scores.due(self._fed)

    def _show(self, text: str) -> Event:
        due, self._due = self._due, []
        self._sent += due
        return {"type": self.delta_type, "content_index": 0, "delta": text, "logprobs": due}
