"""Figures of runs: how turns ended, their times and tokens; a long answer counts while it is generated."""

from collections import Counter
from typing import get_args

from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figures, Labels
from gpt_oss_server.runs.observed import ObservedRun, TurnStatus
from gpt_oss_server.turns.watch import MeasuredSpan

_APIS = ("responses", "chat", "completions", "messages")
_TOKENS = (table.PROMPT_TOKENS, table.CACHED_TOKENS, table.OUTPUT_TOKENS, table.REASONING_TOKENS)


class RunFigures:
    """A `RunObserver`."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._running: dict[ObservedRun, set[int]] = {}  # the generations that are counted, by their ids

    def expect(self, model: str) -> None:
        """Series begin with zeros: Prometheus would not see the first of a new one."""
        for api in _APIS:
            for status in get_args(TurnStatus):
                self._figures.add(table.TURNS, 0, (api, status, model))
            for tokens in _TOKENS:
                self._figures.add(tokens, 0, (api, model))
            for times in (table.DURATION, table.FIRST_TOKEN):
                self._figures.histogram(times, (api, model))
        for of_model in (figure for figure in table.TABLE if figure.bounds and figure.labels == ("model",)):
            self._figures.histogram(of_model, (model,))

    def generating(self, model: str) -> int:
        """Generations of the model that have begun and have not ended."""
        turns = (turn for run in self._running if run.served_model == model for turn in run.turns)
        return sum(span.ended is None for turn in turns for span in turn.generations)

    def began(self, run: ObservedRun) -> None:
        self._running[run] = set()

    def ended(self, run: ObservedRun) -> None:
        figures, usage = self._figures, run.usage()
        model = run.served_model
        api = (run.api, model)
        self._count_generations(run, self._running.pop(run))
        for status in run.statuses:
            figures.add(table.TURNS, labels=(run.api, status, model))
            if run.outlives:
                figures.add(table.BACKGROUND_ENDED, labels=(status,))
        if run.error is not None:
            figures.add(table.ERRORS, labels=(run.api, run.error.code or run.error.type, model))
        assert run.ended_at is not None
        figures.observe(table.DURATION, run.ended_at - run.arrived, api)
        counts = (usage.input, usage.cached, usage.output, usage.reasoning)
        for tokens, count in zip(_TOKENS, counts, strict=True):
            figures.add(tokens, count, api)
        figures.observe(table.PROMPT_SIZE, usage.input, (model,))
        figures.observe(table.OUTPUT_SIZE, usage.output, (model,))

    def running_tokens(self) -> Counter[Labels]:
        """By API and model: the output tokens of answers that have not ended."""
        tokens: Counter[Labels] = Counter()
        for run in self._running:
            tokens[(run.api, run.served_model)] += sum(turn.sampled for turn in run.turns)
        return tokens

    def look(self) -> None:
        """Counts what is known of the runs that have not ended."""
        for run, counted in self._running.items():
            self._count_generations(run, counted)

    def _count_generations(self, run: ObservedRun, counted: set[int]) -> None:
        model = (run.served_model,)
        for turn in run.turns:
            for place, span in enumerate(turn.generations):
                if id(span) in counted:
                    continue
                self._figures.observe_gaps(table.BETWEEN_TOKENS, span.take_reads(), model)
                if span.ended is None:
                    continue
                counted.add(id(span))
                self._count_times(span, model)
                if place == 0 and span.first is not None:
                    self._figures.observe(table.FIRST_TOKEN, span.first - run.arrived, (run.api, *model))

    def _count_times(self, span: MeasuredSpan, model: Labels) -> None:
        figures = self._figures
        if span.queued is not None:
            figures.observe(table.QUEUE, span.queued, model)
        if span.first is None or span.last is None:
            return
        figures.observe(table.PREFILL, max(0.0, span.first - span.began - (span.queued or 0.0)), model)
        figures.observe(table.DECODE, max(0.0, span.last - span.first), model)
        if span.sampled > 1:
            mean = max(0.0, span.last - span.first) / (span.sampled - 1)
            figures.observe(table.PER_TOKEN, mean, model)
