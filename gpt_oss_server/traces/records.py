"""The records of recent responses of this process: what a trace is made of.

A running response has one too. At the end, only what the stored response does not hold stays. The oldest
records go first when the space is used up.
"""

from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.traces.prompts import TracedPrompt, traced
from gpt_oss_server.turns.transcript import ToolRun, Transcript
from gpt_oss_server.turns.watch import GenerationSpan
from inference.grammar import Grammar

_RUNNING = 4096  # records whose runs have not ended; a run that is abandoned before it begins never does
_OF_TOKEN = 4
_OF_SCORE = 150
_OF_RECORD = 20_000  # the request and the response, which the store holds too


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A turn's tokens, in the arrangement of a transcript."""

    prompt: TracedPrompt
    tokens: Sequence[int]
    generations: tuple[GenerationSpan, ...]
    tool_runs: tuple[ToolRun, ...]
    scores: Mapping[int, float]
    alternatives: Mapping[int, tuple[tuple[int, float], ...]]
    warnings: tuple[tuple[str, str], ...]  # kinds and sentences: why the server ended the turn
    grammars: Mapping[int, ref[Grammar]] = field(default_factory=dict)  # in this process, while they are kept


def tokens_of(transcript: Transcript, history: Sequence[Segment] = (), cue: int = 0) -> TokenRecord:
    """A copy of the transcript as it is now, four bytes for each token, without what `history` holds."""
    return TokenRecord(
        traced(transcript.prompt, history, cue),
        array("I", transcript.tokens),
        tuple(
            GenerationSpan(span.start, span.began, span.first, span.ended, span.end, span.cached, span.queued)
            for span in transcript.generations
        ),
        tuple(transcript.tool_runs),
        dict(transcript.scores),
        dict(transcript.alternatives),
        tuple((str(warning.kind), warning.detail) for warning in transcript.warnings),
        dict(transcript.grammars),
    )


@dataclass(slots=True)
class TraceRecord:
    request: Mapping[str, Any]
    response: Mapping[str, Any]  # current while the run is in progress
    recipients: Recipients
    transcript: Transcript | None  # None after the end
    ended: TokenRecord | None = None
    began: float = field(default=0.0)  # by the transcript's clock
    origin: Mapping[str, Any] | None = None  # the process that generated it, if that is another
    owner: str = ""  # who may read it

    def __post_init__(self) -> None:
        if self.transcript is not None:
            self.began = self.transcript.clock()

    @property
    def tokens(self) -> TokenRecord:
        if self.transcript is not None:
            return tokens_of(self.transcript)
        assert self.ended is not None
        return self.ended

    def finish(self, history: Sequence[Segment] = (), cue: int = 0) -> None:
        """Makes the record that stays: without what the stored response's history, `history`, holds of it.

        Until `end`, readers get the whole record from the transcript, as nothing is stored yet.
        """
        assert self.transcript is not None
        self.ended = tokens_of(self.transcript, history, cue)

    def end(self) -> None:
        if self.ended is None:
            self.finish()
        self.transcript = None

    @property
    def size(self) -> int:
        kept = self.ended or self.tokens
        texts = sum(len(run.output) + len(run.arguments) for run in kept.tool_runs)
        count = kept.prompt.kept_tokens + len(kept.tokens)
        return _OF_RECORD + _OF_TOKEN * count + 2 * texts + _OF_SCORE * len(kept.scores)


class Traces:
    """The records of stored responses by id. Disabled, it keeps nothing."""

    def __init__(self, *, enabled: bool, most_bytes: int) -> None:
        self.enabled = enabled
        self._most_bytes = most_bytes
        self._running: OrderedDict[str, TraceRecord] = OrderedDict()
        self._ended: OrderedDict[str, tuple[TraceRecord, int]] = OrderedDict()
        self._bytes = 0

    def begin(self, response_id: str, record: TraceRecord) -> None:
        if self.enabled:
            self._running[response_id] = record
            while len(self._running) > _RUNNING:
                self._running.popitem(last=False)

    def finish(self, response_id: str, history: Sequence[Segment] = (), cue: int = 0) -> TraceRecord | None:
        """The record of a run that is about to be stored, now complete."""
        record = self._running.get(response_id)
        if record is not None:
            record.finish(history, cue)
        return record

    def end(self, response_id: str) -> None:
        """Keeps the record of a run that is stored now."""
        record = self._running.pop(response_id, None)
        if record is None:
            return
        self.forget(response_id)  # of an earlier attempt: the run went to another process and came back
        record.end()
        size = record.size
        self._ended[response_id] = record, size
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._bytes -= self._ended.popitem(last=False)[1][1]

    def get(self, response_id: str, owner: str = "") -> TraceRecord | None:
        """The record of this owner's response."""
        record = self._running.get(response_id)
        if record is None and (ended := self._ended.get(response_id)) is not None:
            record = ended[0]
        return record if record is not None and record.owner == owner else None

    def forget(self, response_id: str) -> None:
        self._running.pop(response_id, None)
        if (ended := self._ended.pop(response_id, None)) is not None:
            self._bytes -= ended[1]
