"""Reasoning: its plain text, its summary and its sealed tokens, which can be read back.

Takes the analysis as the model samples it, and returns the item and its events. From a sealed item that a
client sends back it returns the exact tokens that the model wrote, so that a conversation that is not stored
continues like a stored one. It rejects content that another server sealed or that was changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from gpt_oss_server.content.logprobs import Speller, TextScores
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Event, EventTexts, Item, TextItem
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.kind import ItemKind, ItemType
from gpt_oss_server.stores.sealing import Sealer, packed_tokens, unpacked_tokens
from inference.engine import TokenLogprob

_PREFIX = "rs"
_PURPOSE = "reasoning"

Seal = Callable[[MessageFinished], str]
SummaryKind = Literal["auto", "concise", "detailed"]

REASONING_EVENTS = {"openai": "response.reasoning_text", "open-responses": "response.reasoning"}
"""The names of reasoning events in OpenAI's API, and in Open Responses' examples and tests."""

SUMMARY_EVENTS = {
    "response.reasoning_summary_part.added": "A paragraph of the summary begins.",
    "response.reasoning_summary_text.delta": "More text of the summary.",
    "response.reasoning_summary_text.done": "The text of the paragraph is complete.",
    "response.reasoning_summary_part.done": "The paragraph is complete.",
}
_WORDS = re.compile(r"\s+|\S+")


class ReasoningBuilder(TextItem):
    about = "The model's reasoning, as it wrote it."
    about_events: ClassVar[EventTexts] = {
        **TextItem.about_events,
        "response.reasoning_text.delta": "More text of the reasoning.",
        "response.reasoning_text.done": "The text of the reasoning is complete.",
        "response.reasoning.delta": "The same with `--event-names open-responses`.",
        "response.reasoning.done": "The same with `--event-names open-responses`.",
        **SUMMARY_EVENTS,
    }

    def __init__(
        self, ids: Ids, summary: Summary | None, seal: Seal | None, events: str, speller: Speller | None
    ) -> None:
        super().__init__(ids(_PREFIX))
        self.delta_type, self.done_type = f"{events}.delta", f"{events}.done"
        self._summary = summary
        self._seal = seal
        self._sealed: str | None = None
        self._scores = None if speller is None else TextScores(speller)

    def item(self, content: list[Item], status: str) -> Item:
        summary = [] if self._summary is None else list(self._summary.parts)
        item = {"id": self.id, "type": "reasoning", "summary": summary, "content": content}
        return item if self._sealed is None else {**item, "encrypted_content": self._sealed}

    def part(self, text: str) -> Item:
        part = {"type": "reasoning_text", "text": text}
        return part if self._scores is None else {**part, "logprobs": list(self._scores.sent)}

    def score(self, scored: TokenLogprob) -> None:
        if self._scores is not None:
            self._scores.score(scored)

    def delta(self, text: str) -> tuple[Event, ...]:
        events = super().delta(text)
        if self._scores is not None:
            events[0]["logprobs"] = self._scores.show(text)
        return events if self._summary is None else (*events, *self._summary.feed(text))

    def ended(self, message: MessageFinished) -> None:
        if self._seal is not None:
            self._sealed = self._seal(message)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        last = [] if self._summary is None else self._summary.close()
        events, item = super().close(text, complete=complete)
        if self._scores is not None:
            events[0]["logprobs"] = list(self._scores.sent)
        return [*events, *last], item


class Summary:
    """Takes the summary from the reasoning itself while it streams: feed it every delta, then close.

    A part for each paragraph. No second model interprets the first.
    """

    def __init__(self) -> None:
        self.parts: list[Event] = []  # the finished parts
        self._gap = ""  # white space held back, since it may separate two paragraphs
        self._open: list[str] | None = None  # the texts of the current part
        self._due = ""

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        for piece in _WORDS.findall(text):
            if piece.isspace():
                self._gap += piece
            else:
                self._word(piece, events)
        self._flush(events)
        return events

    def close(self) -> list[Event]:
        events: list[Event] = []
        self._end_summary_part(events)
        return events

    def _word(self, word: str, events: list[Event]) -> None:
        gap, self._gap = self._gap, ""
        if gap.count("\n") > 1:
            self._end_summary_part(events)
        if self._open is None:
            self._open, gap = [], ""
            events.append(self._event("part.added", part=_summary_part("")))
        self._due += gap + word

    def _end_summary_part(self, events: list[Event]) -> None:
        if self._open is None:
            return
        self._flush(events)
        part = _summary_part("".join(self._open))
        events.append(self._event("text.done", text=part["text"]))
        events.append(self._event("part.done", part=part))
        self.parts.append(part)
        self._open = None

    def _flush(self, events: list[Event]) -> None:
        if self._due and self._open is not None:
            events.append(self._event("text.delta", delta=self._due))
            self._open.append(self._due)
            self._due = ""

    def _event(self, name: str, **fields: Any) -> Event:
        return {"type": f"response.reasoning_summary_{name}", "summary_index": len(self.parts), **fields}


def _summary_part(text: str) -> Event:
    return {"type": "summary_text", "text": text}


def seal_reasoning(sealer: Sealer, tokens: Sequence[int]) -> str:
    return sealer.seal(_PURPOSE, packed_tokens(tokens))


def unsealed_reasoning(sealer: Sealer, sealed: str) -> Segment | None:
    """The message as it was sampled; None if this server did not seal the content."""
    content = sealer.open(_PURPOSE, sealed)
    return None if content is None else Segment("assistant", unpacked_tokens(content), "analysis")


def _read(item: Item, where: str, conversation: Conversation) -> None:
    """Reasoning: sealed, with its very tokens; otherwise its text or its summary."""
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        segment = unsealed_reasoning(conversation.sealer, sealed)
        if segment is not None:
            conversation.add(segment)
            return
    content = item.get("content") or item.get("summary") or []
    text = text_of(content, f"{where}.content")
    if text:
        conversation.add(conversation.renderer.reasoning(text))


REASONING = ItemKind((ItemType("reasoning", _read, _PREFIX),))
