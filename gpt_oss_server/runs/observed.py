"""One run of a request as metrics and traces see it: when it arrived, its turns, how each ended, its usage.

Takes what a run of any API reports. Passes it to the observers of the server, and counts it in the server's
counters. A run has one turn, or one for each choice. It must not know what becomes of the figures.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpt_oss_server.errors import ApiError
from gpt_oss_server.runs.usage import Usage
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.watch import UNWATCHED, MeasuredSpan, Watch
from inference.engine import Finish

_WITH_CHOICES = ("chat", "completions")
Api = str  # the name of an API, as metrics and traces label it
TurnStatus = Literal["completed", "incomplete", "failed", "cancelled", "disconnected", "handed_over"]


class ObservedTurn(Protocol):
    """What a turn knows of itself, at any time."""

    @property
    def sampled(self) -> int: ...

    @property
    def generations(self) -> Sequence[MeasuredSpan]: ...


class RunObserver(Protocol):
    """Learns of every run. Nothing that it does may fail the run."""

    def began(self, run: ObservedRun) -> None:
        """It may set the run's watch."""
        ...

    def ended(self, run: ObservedRun) -> None: ...


@dataclass(slots=True, eq=False)
class ObservedRun:
    """Create it with the run; `running` is the time in which the run may generate."""

    api: Api
    id: str
    model: str  # as the request names it
    served_model: str  # its own name
    counters: Counters
    observers: Sequence[RunObserver]
    usage: Callable[[], Usage] = Usage
    conversation: str | None = None
    outlives: bool = False  # its connection; `stopped` and `over` then follow `running`
    arrived: float = field(default_factory=time.monotonic)
    watch: Watch = UNWATCHED
    turns: list[ObservedTurn] = field(default_factory=list)
    statuses: list[TurnStatus] = field(default_factory=list)  # of the turns that have ended
    error: ApiError | None = None
    ended_at: float | None = None
    _began: bool = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """A client that disconnects before the block ends is counted, unless the run outlives it."""
        self._began = True
        for observer in self.observers:
            observer.began(self)
        try:
            yield
        except BaseException:  # closed, cancelled, or broken by a defect
            if self.outlives:
                raise
            self.counters.cancelled += 1
            self._end("disconnected")
            raise
        self._end("failed")

    def add(self, turn: Transcript) -> None:
        """A turn begins."""
        turn.watch = self.watch
        self.turns.append(turn)

    def turn_ended(
        self, status: TurnStatus, departures: Sequence[str] = (), error: ApiError | None = None
    ) -> None:
        self.statuses.append(status)
        self.error = error or self.error
        self.counters.count(status, departures)

    def refused(self, error: ApiError) -> None:
        """The whole of a run that could not begin."""
        with self.running():
            self.turn_ended("failed", error=error)

    def over(self) -> None:
        """Nothing more happens to the run in this process."""
        self._end("handed_over")

    def _end(self, otherwise: TurnStatus) -> None:
        """`otherwise` is the status of turns that had no end of their own."""
        if self.ended_at is not None or not self._began:
            return
        self.ended_at = time.monotonic()
        # A response or a message is one turn, even where a compaction came before it.
        count = max(1, len(self.turns)) if self.api in _WITH_CHOICES else 1
        self.statuses += [otherwise] * (count - len(self.statuses))
        for observer in self.observers:
            observer.ended(self)
        for turn in self.turns:
            for span in turn.generations:
                span.take_reads()  # a trace may keep the spans, without these


Outcome = Literal["completed", "incomplete", "failed"]


def outcome(finish: Finish | None, error: ApiError | None) -> Outcome:
    """The outcome of a response or a choice, from the engine's finish and the error that ended it, if any."""
    if error is not None:
        return "failed"
    return "completed" if finish in (None, Finish.STOP) else "incomplete"


class Counters:
    def __init__(self) -> None:
        self.responses: Counter[str] = Counter()  # by status
        self.slips: Counter[str] = Counter()  # by kind
        self.cancelled = 0  # by clients that disconnected before the end

    def count(self, status: str, slips: Iterable[str]) -> None:
        self.responses[status] += 1
        self.slips.update(slips)

    def snapshot(self) -> dict[str, object]:
        return {
            "responses": dict(self.responses),
            "harmony_slips": dict(self.slips),
            "cancelled": self.cancelled,
        }
