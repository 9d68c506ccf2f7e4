"""Figures of runs: how turns ended, how long they took, and their tokens.

What still runs is read when Prometheus asks, so that a long answer counts while it is generated.
"""

from collections import Counter
from typing import get_args

from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figures
from gpt_oss_server.runs.observed import ObservedRun, TurnStatus
from gpt_oss_server.turns.watch import MeasuredSpan

_APIS = ("responses", "chat", "completions")
_TOKENS = (table.PROMPT_TOKENS, table.CACHED_TOKENS, table.OUTPUT_TOKENS, table.REASONING_TOKENS)


class RunFigures:
    """A `RunObserver`."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        for api in _APIS:  # from the start: Prometheus would not see the first of a new series
            for status in get_args(TurnStatus):
                figures.add(table.TURNS, 0, (api, status))
            for tokens in _TOKENS:
                figures.add(tokens, 0, (api,))
        self._running: dict[ObservedRun, set[int]] = {}  # the generations that are counted, by their ids

    @property
    def generating(self) -> int:
        """Generations that have begun and have not ended."""
        turns = (turn for run in self._running for turn in run.turns)
        return sum(span.ended is None for turn in turns for span in turn.generations)

    def began(self, run: ObservedRun) -> None:
        self._running[run] = set()

    def ended(self, run: ObservedRun) -> None:
        figures, api, usage = self._figures, (run.api,), run.usage()
        self._count_generations(run, self._running.pop(run))
        for status in run.statuses:
            figures.add(table.TURNS, labels=(run.api, status))
            if run.outlives:
                figures.add(table.BACKGROUND_ENDED, labels=(status,))
        if run.error is not None:
            figures.add(table.ERRORS, labels=(run.api, run.error.code or run.error.type))
        assert run.ended_at is not None
        figures.observe(table.DURATION, run.ended_at - run.arrived, api)
        counts = (usage.input, usage.cached, usage.output, usage.reasoning)
        for tokens, count in zip(_TOKENS, counts, strict=True):
            figures.add(tokens, count, api)
        figures.observe(table.PROMPT_SIZE, usage.input)
        figures.observe(table.OUTPUT_SIZE, usage.output)

    def running_tokens(self) -> Counter[str]:
        """By API: the output tokens of answers that have not ended."""
        tokens: Counter[str] = Counter()
        for run in self._running:
            tokens[run.api] += sum(turn.sampled for turn in run.turns)
        return tokens

    def look(self) -> None:
        """Counts what is known of the runs that have not ended."""
        for run, counted in self._running.items():
            self._count_generations(run, counted)

    def _count_generations(self, run: ObservedRun, counted: set[int]) -> None:
        for turn in run.turns:
            for place, span in enumerate(turn.generations):
                if id(span) in counted:
                    continue
                self._figures.observe_gaps(table.BETWEEN_TOKENS, span.take_reads())
                if span.ended is None:
                    continue
                counted.add(id(span))
                self._count_times(span)
                if place == 0 and span.first is not None:
                    self._figures.observe(table.FIRST_TOKEN, span.first - run.arrived, (run.api,))

    def _count_times(self, span: MeasuredSpan) -> None:
        figures = self._figures
        if span.queued is not None:
            figures.observe(table.QUEUE, span.queued)
        if span.first is None or span.last is None:
            return
        figures.observe(table.PREFILL, max(0.0, span.first - span.began - (span.queued or 0.0)))
        figures.observe(table.DECODE, max(0.0, span.last - span.first))
        if span.sampled > 1:
            figures.observe(table.PER_TOKEN, max(0.0, span.last - span.first) / (span.sampled - 1))
