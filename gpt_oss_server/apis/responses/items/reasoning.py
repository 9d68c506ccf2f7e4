"""The reasoning item: its plain text, its summary and its sealed tokens, which can be read back.

Takes the analysis as the model samples it, and returns the item and its events. From a sealed item that a
client sends back it returns the exact tokens that the model wrote, so that a conversation that is not stored
continues like a stored one. It rejects content that another server sealed or somebody changed.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import ClassVar

from gpt_oss_server.apis.responses.items.builders import TextItemBuilder
from gpt_oss_server.apis.responses.items.summary import SUMMARY_EVENTS, Summary
from gpt_oss_server.content.logprobs import TextScores
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.items.builder import Event, EventTexts, Item
from gpt_oss_server.stores.sealing import Sealer
from inference.engine import TokenLogprob

_PURPOSE = "reasoning"
_BYTES = 4  # per token id, little-endian

Seal = Callable[[MessageFinished], str]


REASONING_EVENTS = {"openai": "response.reasoning_text", "open-responses": "response.reasoning"}
"""The names of reasoning events in OpenAI's API, and in Open Responses' examples and tests."""


class ReasoningBuilder(TextItemBuilder):
    about = "The model's reasoning, as it wrote it."
    about_events: ClassVar[EventTexts] = {
        **TextItemBuilder.about_events,
        "response.reasoning_text.delta": "More text of the reasoning.",
        "response.reasoning_text.done": "The text of the reasoning is complete.",
        "response.reasoning.delta": "The same with `--event-names open-responses`.",
        "response.reasoning.done": "The same with `--event-names open-responses`.",
        **SUMMARY_EVENTS,
    }

    def __init__(
        self,
        item_id: str,
        summary: Summary | None = None,
        seal: Seal | None = None,
        events: str = REASONING_EVENTS["openai"],
        scores: TextScores | None = None,
    ) -> None:
        super().__init__(item_id)
        self.delta_type, self.done_type = f"{events}.delta", f"{events}.done"
        self._summary = summary
        self._seal = seal
        self._sealed: str | None = None
        self._scores = scores

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


def seal_reasoning(sealer: Sealer, tokens: Sequence[int]) -> str:
    return sealer.seal(_PURPOSE, _in_order(array("I", tokens)).tobytes())


def unsealed_reasoning(sealer: Sealer, sealed: str) -> Segment | None:
    """The message as it was sampled; None if this server did not seal the content."""
    content = sealer.open(_PURPOSE, sealed)
    if content is None or len(content) % _BYTES:
        return None
    tokens = array("I")
    tokens.frombytes(content)
    return Segment("assistant", tuple(_in_order(tokens)), "analysis")


def _in_order(tokens: array[int]) -> array[int]:
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
