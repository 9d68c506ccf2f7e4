"""Writes figures, wherever they come from, for Prometheus: under this server's names, vLLM's, or both."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.registry import Collector

from gpt_oss_server.observe.metrics import vllm_names
from gpt_oss_server.observe.metrics.figures import Figure, Histogram, Labels, Value
from gpt_oss_server.observe.metrics.table import PREFIX, TABLE, TURNS

Values = Mapping[Figure, Mapping[Labels, Value]]


class Exposition(Collector):
    def __init__(self, read: Callable[[], Values], names: str) -> None:
        """`names`: `own`, `vllm` or `both`. `read` returns the figures that have values now."""
        self._read = read
        self._names = names
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text, and its media type, in the format that the client accepts."""
        encode, media_type = choose_encoder(accept)
        # Every name here is valid as it is. Without this, `vllm:` becomes `vllm_` for Prometheus 2.
        return cast(Callable[..., bytes], encode)(self._registry, escaping=ALLOWUTF8), media_type

    def collect(self) -> Iterable[Metric]:
        values = self._read()
        if self._names in ("own", "both"):
            for figure in TABLE:
                if figure in values:
                    yield _family(PREFIX + figure.name, figure, figure.labels, values[figure])
        if self._names in ("vllm", "both"):
            yield from self._of_vllm(values)

    def _of_vllm(self, values: Values) -> Iterator[Metric]:
        for figure, name in vllm_names.NAMES.items():
            if figure in values:
                by_model = vllm_names.by_model(figure, values[figure])
                yield _family(vllm_names.PREFIX + name, figure, vllm_names.LABELS, by_model)
        own_labels = (*vllm_names.LABELS, vllm_names.REASON)
        by_reason = vllm_names.successes(values.get(TURNS, {}))
        yield _family(vllm_names.PREFIX + vllm_names.SUCCESS, TURNS, own_labels, by_reason)


def _family(name: str, figure: Figure, labels: Labels, values: Mapping[Labels, Value]) -> Metric:
    if figure.kind == "histogram":
        histogram = HistogramMetricFamily(name, figure.help, labels=labels)
        for of, value in values.items():
            assert isinstance(value, Histogram)
            bounds = (*map(str, figure.bounds), "+Inf")  # each with the number of observations up to it
            counts = map(float, accumulate(value.counts))
            histogram.add_metric(of, list(zip(bounds, counts, strict=True)), value.sum)
        return histogram
    kind = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    family = kind(name, figure.help, labels=labels)
    for of, value in values.items():
        assert not isinstance(value, Histogram)
        family.add_metric(of, value)
    return family
