"""Reasoning as an item, and back from it: its text in the open, its summary, and its tokens sealed.

In: the analysis as it is sampled. Out: the item and its events. From a sealed item that a client sends back
come the very tokens that the model wrote, so that a conversation that is not stored here goes on as one that
is. What another server has sealed, or somebody changed, is nobody's reasoning.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence

from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.item_builder import Event, Item
from gpt_oss_server.responses.items.builders import TextItemBuilder
from gpt_oss_server.responses.items.summary import Summary
from gpt_oss_server.stores.sealing import Sealer

_PURPOSE = "reasoning"
_BYTES = 4  # of a token's id, the lowest first

Seal = Callable[[MessageFinished], str]


REASONING_EVENTS = {"openai": "response.reasoning_text", "open-responses": "response.reasoning"}
"""What the events of reasoning are called, in OpenAI's API and in Open Responses' examples and tests."""


class ReasoningBuilder(TextItemBuilder):
    def __init__(
        self,
        item_id: str,
        summary: Summary | None = None,
        seal: Seal | None = None,
        events: str = REASONING_EVENTS["openai"],
    ) -> None:
        super().__init__(item_id)
        self.delta_type, self.done_type = f"{events}.delta", f"{events}.done"
        self._summary = summary
        self._seal = seal
        self._sealed: str | None = None

    def item(self, content: list[Item], status: str) -> Item:
        summary = [] if self._summary is None else list(self._summary.parts)
        item = {"id": self.id, "type": "reasoning", "summary": summary, "content": content}
        return item if self._sealed is None else {**item, "encrypted_content": self._sealed}

    def part(self, text: str) -> Item:
        return {"type": "reasoning_text", "text": text}

    def delta(self, text: str) -> tuple[Event, ...]:
        told = super().delta(text)
        return told if self._summary is None else (*told, *self._summary.feed(text))

    def ended(self, message: MessageFinished) -> None:
        """The message is whole, or as whole as it will be, and its tokens are known."""
        if self._seal is not None:
            self._sealed = self._seal(message)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        last = [] if self._summary is None else self._summary.close()
        events, item = super().close(text, complete=complete)
        return [*events, *last], item


def seal_reasoning(sealer: Sealer, tokens: Sequence[int]) -> str:
    return sealer.seal(_PURPOSE, _in_order(array("I", tokens)).tobytes())


def unsealed_reasoning(sealer: Sealer, sealed: str) -> Segment | None:
    """The message as it was sampled; None where the text is none of ours."""
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
