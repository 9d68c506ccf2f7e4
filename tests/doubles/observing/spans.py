"""Spans and metrics of OpenTelemetry, kept in memory. Pass their `provider` to `create_app`."""

from collections.abc import Sequence

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def _in_order(self) -> list[ReadableSpan]:
        return sorted(self.ended, key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._in_order() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def tree(self) -> dict[str, list[str]]:
        """The names of each span's children, in the order in which they began; spans of one name together."""
        names = {span.context.span_id: span.name for span in self.ended}
        found: dict[str, list[str]] = {}
        for span in self._in_order():
            above = span.parent and span.parent.span_id
            parent = names.get(above, f"{above:016x}") if above else ""
            found.setdefault(parent, []).append(span.name)
        return found


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


class Measured:
    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    @property
    def metrics(self) -> dict[str, Metric]:
        """By name, since the provider was made."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str, **attributes: str) -> list[HistogramDataPoint]:
        """Those of a histogram with these attributes, whose names have `_` for their dots here."""
        if (metric := self.metrics.get(name)) is None:
            return []
        found = [point for point in metric.data.data_points if isinstance(point, HistogramDataPoint)]
        return [point for point in found if attributes.items() <= _attributes(point).items()]

    def point(self, name: str, **attributes: str) -> HistogramDataPoint:
        [found] = self.points(name, **attributes)
        return found


def _attributes(point: HistogramDataPoint) -> dict[str, object]:
    return {name.replace(".", "_"): value for name, value in (point.attributes or {}).items()}
