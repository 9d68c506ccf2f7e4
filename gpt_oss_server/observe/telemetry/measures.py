"""Metrics of runs and tools for OpenTelemetry, recorded when they end; no attribute has a client's text."""

from collections.abc import Sequence

from opentelemetry.metrics import Histogram, Meter
from opentelemetry.util.types import AttributeValue

from gpt_oss_server.observe.telemetry import conventions as names
from gpt_oss_server.runs.observed import ObservedRun
from gpt_oss_server.turns.watch import MeasuredSpan

_Attributes = dict[str, AttributeValue]


class Measures:
    """A `RunObserver`."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> Histogram:
            advised = {"explicit_bucket_boundaries_advisory": bounds}
            return meter.create_histogram(f"gen_ai.{name}", unit, description, **advised)

        seconds = names.SECONDS
        self._tokens = histogram("client.token.usage", "{token}", "The tokens of a request.", names.TOKENS)
        self._operation = histogram("client.operation.duration", "s", "The time of a request.", seconds)
        self._request = histogram("server.request.duration", "s", "The time of a request.", seconds)
        self._first = histogram(
            "server.time_to_first_token", "s", "From the arrival to the first token.", names.FIRST_TOKEN
        )
        self._per_token = histogram(
            "server.time_per_output_token", "s", "The mean time of a token after the first.", names.PER_TOKEN
        )
        self._tools = histogram("execute_tool.duration", "s", "The time of a tool's run.", seconds)

    def began(self, run: ObservedRun) -> None:
        return None

    def ended(self, run: ObservedRun) -> None:
        assert run.ended_at is not None
        of_run: _Attributes = {
            names.OPERATION: names.OPERATIONS.get(run.api, "chat"),
            names.PROVIDER_NAME: names.PROVIDER,
            names.MODEL: run.served_model,
        }
        usage = run.usage()
        self._tokens.record(usage.input, {**of_run, names.TOKEN_TYPE: "input"})
        self._tokens.record(usage.output, {**of_run, names.TOKEN_TYPE: "output"})
        seconds, failed = run.ended_at - run.arrived, _failure(run)
        self._operation.record(seconds, {**of_run, **failed})
        self._request.record(seconds, {**of_run, **failed})
        if failed:
            return
        for turn in run.turns:
            self._record_times(run, turn.generations, of_run)

    def on_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        attributes: _Attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: tool}
        if outcome != "done":
            attributes[names.ERROR_TYPE] = outcome
        self._tools.record(seconds, attributes)

    def _record_times(
        self, run: ObservedRun, generations: Sequence[MeasuredSpan], attributes: _Attributes
    ) -> None:
        for place, span in enumerate(generations):
            if span.first is None:
                continue
            if place == 0:
                self._first.record(max(0.0, span.first - run.arrived), attributes)
            newest = span.newest_read
            if newest is not None and span.sampled > 1:
                self._per_token.record(max(0.0, newest - span.first) / (span.sampled - 1), attributes)


def _failure(run: ObservedRun) -> _Attributes:
    if run.error is not None:
        return {names.ERROR_TYPE: run.error.code or run.error.type}
    unfinished = [status for status in run.statuses if status in ("cancelled", "disconnected", "handed_over")]
    return {names.ERROR_TYPE: unfinished[0]} if unfinished else {}
