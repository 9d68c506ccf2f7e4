"""Metrics of OpenTelemetry, kept in memory."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric


class Measured:
    """Pass `provider` to `create_app`."""

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
