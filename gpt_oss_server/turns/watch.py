"""What is measured of a turn while it runs, and the contract of those that watch it.

Takes the moments of a generation. Returns them as a `MeasuredSpan`, which metrics and traces read. A
`Watch` learns of each generation and each run of a tool when it begins and ends; nothing that it does may
fail the turn. It must not know what becomes of the figures.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from inference.engine import Sampling, Step


@dataclass(slots=True)
class GenerationSpan:
    """Where a generation stands in the turn's tokens, and when it ran, by the transcript's clock."""

    start: int
    began: float
    first: float | None = None  # its first token
    ended: float | None = None
    end: int | None = None  # None: the end of the tokens
    cached: int = 0  # of its prompt
    queued: float | None = None  # seconds until the engine began to compute; None: the engine does not say


@dataclass(slots=True)
class MeasuredSpan(GenerationSpan):
    """The same, with what metrics and traces need while it runs, and nothing keeps."""

    prompt: int = 0  # tokens
    sampled: int = 0  # tokens; set by its end
    trace: str = ""  # its W3C trace context, for an engine that passes it on
    last: float | None = None  # the newest step that `take_reads` has seen
    reads: array[float] = field(default_factory=lambda: array("d"))  # when steps arrived, since `take_reads`

    def first_step(self, step: Step, prompt: int, now: float) -> None:
        """Records what the first step shows. `prompt` is the number of its tokens."""
        self.first, self.cached, self.prompt, self.queued = now, step.cached_tokens, prompt, step.queued

    @property
    def newest_read(self) -> float | None:
        """When the newest step arrived."""
        return self.reads[-1] if self.reads else self.last

    def take_reads(self) -> array[float]:
        """When steps arrived since the last call, after the last of those before."""
        taken = self.reads[:]
        del self.reads[:]  # not a new one: the generation holds this one's `append`
        if self.last is not None:
            taken.insert(0, self.last)
        if taken:
            self.last = taken[-1]
        return taken


@dataclass(slots=True)
class WatchedTool:
    """One run of a tool. The turn sets `failed` from the tool's output."""

    recipient: str
    failed: bool = False


class Watch:
    """Learns of the parts of a turn while they happen. This one makes nothing of it."""

    def began(self, span: MeasuredSpan) -> None:
        """It may set the span's `trace`."""

    def ended(self, span: MeasuredSpan, error: BaseException | None) -> None: ...

    @contextmanager
    def tool(self, recipient: str) -> Iterator[WatchedTool]:
        yield WatchedTool(recipient)


UNWATCHED = Watch()


@contextmanager
def generating(
    watch: Watch, start: int, clock: Callable[[], float], sampled: Callable[[], int]
) -> Iterator[MeasuredSpan]:
    """The time in which a generation samples; `sampled` counts the tokens of its whole turn."""
    span = MeasuredSpan(start, clock())
    watch.began(span)
    before, error = sampled(), None
    try:
        yield span
    except BaseException as raised:
        error = raised
        raise
    finally:
        span.ended, span.sampled = clock(), sampled() - before
        watch.ended(span, error)


def with_trace(sampling: Sampling, trace: str) -> Sampling:
    """The sampling with a trace context, which the engine's own spans then continue."""
    return replace(sampling, labels={**sampling.labels, "traceparent": trace}) if trace else sampling
