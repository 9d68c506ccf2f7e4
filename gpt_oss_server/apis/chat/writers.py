"""One writer per kind of Harmony message.

Takes the text of one message and returns parts of a chat choice. A part is a choice without index and finish
reason: a delta and its log-probabilities. A writer knows the shape of its delta and, through `Shown`, the
amount of earlier output. It must not know chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpt_oss_server.content.logprobs import Scores
from gpt_oss_server.items.file_search import annotation_of
from gpt_oss_server.turns.stops import StopFilter
from inference.engine import TokenLogprob

if TYPE_CHECKING:
    from tools.browser.citations import CitationRewriter

ChunkPart = dict[str, Any]
BETWEEN_MESSAGES = "\n\n"  # one chat message's content may hold several messages of the model


@dataclass(slots=True)
class Shown:
    """The amount of a choice's output so far."""

    content: int = 0  # characters
    reasoning: int = 0
    calls: int = 0
    executed: int = 0


class Writer:
    """Writes one message of a choice: one `open`, any number of `delta`s, one `close`. By itself, nothing."""

    def open(self) -> list[ChunkPart]:
        """The parts that come before any text."""
        return []

    def delta(self, text: str) -> list[ChunkPart]:
        """The parts for more text."""
        return []

    def score(self, scored: TokenLogprob) -> None:
        """Takes the log-probability of the token whose text follows. Only the final text has scores."""

    def close(self) -> list[ChunkPart]:
        """The parts that were held back."""
        return []


class ReasoningWriter(Writer):
    def __init__(self, shown: Shown, fields: tuple[str, ...]) -> None:
        self._shown = shown
        self._fields = fields
        self._begins = True

    def delta(self, text: str) -> list[ChunkPart]:
        if self._begins:
            self._begins = False
            text = BETWEEN_MESSAGES + text if self._shown.reasoning else text
        self._shown.reasoning += len(text)
        return [{"delta": dict.fromkeys(self._fields, text)}] if self._fields else []


@dataclass(slots=True)
class ContentWriter(Writer):
    """A preamble or an answer."""

    shown: Shown
    stops: StopFilter | None = None
    citations: CitationRewriter | None = None
    scores: Scores | None = None
    _begins: bool = field(default=True, init=False)
    _base: int = field(init=False)  # where this message begins in the content
    _fed: int = field(default=0, init=False)  # characters of the model's text
    _passed: int = field(default=0, init=False)  # those that the stop filter has passed
    _due: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._base = self.shown.content

    def score(self, scored: TokenLogprob) -> None:
        if self.scores is not None:
            self.scores.feed(scored, self._fed)

    def delta(self, text: str) -> list[ChunkPart]:
        self._fed += len(text)
        return self._pass(self.stops.feed(text) if self.stops is not None else text)

    def close(self) -> list[ChunkPart]:
        parts = self._pass(self.stops.close()) if self.stops is not None else []
        if self.citations is not None:
            parts += [part for piece in self.citations.close() for part in self._piece(piece)]
        return parts

    def _pass(self, text: str) -> list[ChunkPart]:
        if not text:
            return []
        self._passed += len(text)
        if self.scores is not None:
            self._due += self.scores.due(self._passed)
        if self.citations is None:
            return [self._show(text)]
        return [part for piece in self.citations.feed(text) for part in self._piece(piece)]

    def _piece(self, piece: Any) -> list[ChunkPart]:
        part = self._show(piece.text)
        if hasattr(piece, "url"):
            base = self._base
            placed = replace(piece, start_index=base + piece.start_index, end_index=base + piece.end_index)
            cited = annotation_of(placed)
            kind = cited.pop("type")
            part["delta"]["annotations"] = [{"type": kind, kind: cited}]
        return [part]

    def _show(self, text: str) -> ChunkPart:
        if self._begins:
            self._begins = False
            if self.shown.content:
                text = BETWEEN_MESSAGES + text
                self._base += len(BETWEEN_MESSAGES)
        self.shown.content += len(text)
        part: ChunkPart = {"delta": {"content": text}}
        if self.scores is not None:
            part["logprobs"] = {"content": self._due, "refusal": None}
            self._due = []
        return part


class CallWriter(Writer):
    """A call that the client runs: its id and name once, then what the model writes, as it is sampled."""

    def __init__(self, shown: Shown, name: str, new_id: Callable[[], str], *, is_custom: bool) -> None:
        self._kind, self._body = ("custom", "input") if is_custom else ("function", "arguments")
        self._index = shown.calls
        self._name = name
        self._new_id = new_id
        shown.calls += 1

    def open(self) -> list[ChunkPart]:
        called = {"name": self._name, self._body: ""}
        call = {"index": self._index, "id": self._new_id(), "type": self._kind, self._kind: called}
        return [{"delta": {"tool_calls": [call]}}]

    def delta(self, text: str) -> list[ChunkPart]:
        return [{"delta": {"tool_calls": [{"index": self._index, self._kind: {self._body: text}}]}}]
