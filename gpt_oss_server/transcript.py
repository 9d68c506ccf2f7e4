"""What happened in one turn, as it happened: append-only tokens, and the messages found in them.

In: the prompt, then sampled tokens and decoded messages. Out: counts for usage, text for debugging, and the
turn's segments for the history of the conversation. It knows neither items nor HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpt_oss_server.harmony.events import MessageFinished, Slip


@dataclass(slots=True)
class Transcript:
    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)  # sampled, the stop token included
    messages: list[MessageFinished] = field(default_factory=list)
    slips: list[Slip] = field(default_factory=list)
    cached_tokens: int = 0

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the reasoning messages, their headers and ends included."""
        return sum(
            message.end - message.start
            for message in self.messages
            if message.header.channel == "analysis" and message.header.recipient is None
        )
