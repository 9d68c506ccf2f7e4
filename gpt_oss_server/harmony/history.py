"""A conversation after rendering: segments of token ids that are never rendered again.

A segment is one Harmony message, with its own start and end tokens. A prompt is a concatenation of segments,
and a layout is a prompt before they are joined. Harmony's rule for dropping analysis is applied to whole
segments, and only here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal

from gpt_oss_server.harmony.events import Channel

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Segment:
    """One message as token ids, from <|start|> to <|end|> or <|call|>."""

    role: Role
    tokens: Sequence[int]  # a tuple, or an array where they exceed every context
    channel: Channel | None = None
    recipient: str | None = None
    # Only for developer messages: their instructions, so that leading ones can be merged.
    text: str | None = None
    # On the last segment of a compaction: this many segments, itself included, replace all earlier ones.
    stands_for: int = 0
    # The tools that are available from here on, as the client wrote them.
    tools: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.tokens, list):  # read from JSON: equal segments compare equal
            object.__setattr__(self, "tokens", tuple(self.tokens))

    @property
    def is_reasoning(self) -> bool:
        return self.role == "assistant" and self.channel == "analysis" and self.recipient is None

    @property
    def is_answer(self) -> bool:
        return self.role == "assistant" and self.channel == "final"


@dataclass(frozen=True, slots=True)
class Layout:
    """A prompt as its segments in order: its length is known before its tokens are joined."""

    segments: Sequence[Segment]
    cue: Sequence[int]  # the start of the model's turn

    @property
    def length(self) -> int:
        return sum(len(segment.tokens) for segment in self.segments) + len(self.cue)

    def tokens(self) -> list[int]:
        tokens: list[int] = []
        for part in (*(segment.tokens for segment in self.segments), self.cue):
            tokens += part
        return tokens


def kept(history: Sequence[Segment], *, all_reasoning: bool = False) -> list[Segment]:
    """The segments that the model sees: without the reasoning that led to an earlier answer.

    Within a tool loop (no answer since) reasoning stays. The library's own rule keeps all old reasoning when
    the conversation ends on a tool result, so this function applies the rule by turn.
    """
    return list(compress(history, are_kept(history, all_reasoning=all_reasoning)))


def are_kept(history: Sequence[Segment], *, all_reasoning: bool = False) -> list[bool]:
    """Which segments the model sees. The result also holds for the rest when the oldest are removed."""
    if all_reasoning:
        return [True] * len(history)
    answer = last_answer(history)
    return [i > answer or not segment.is_reasoning for i, segment in enumerate(history)]


def last_answer(history: Sequence[Segment]) -> int:
    """The index of the last answer, or -1 if there is none."""
    return max((i for i, segment in enumerate(history) if segment.is_answer), default=-1)


def since_compaction(history: Sequence[Segment]) -> tuple[Segment, ...]:
    """The newest compaction and what follows it, after earlier instructions that it did not keep."""
    last = max((i for i, segment in enumerate(history) if segment.stands_for), default=None)
    if last is None:
        return tuple(history)
    first = max(last + 1 - history[last].stands_for, 0)
    instructions = [segment for segment in history[:first] if segment.role == "developer"]
    known = {segment.text for segment in instructions}
    compacted = [s for s in history[first : last + 1] if s.role != "developer" or s.text not in known]
    return (*instructions, *compacted, *history[last + 1 :])


def split_leading_instructions(history: Sequence[Segment]) -> tuple[list[str], list[Segment]]:
    """The texts of the developer messages that open the conversation, and everything after them."""
    leading: list[str] = []
    for segment in history:
        if segment.role != "developer" or segment.text is None:
            break
        leading.append(segment.text)
    return leading, list(history[len(leading) :])
