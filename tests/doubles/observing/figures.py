"""What operators see: figures, read as Prometheus reads them, and spans and metrics of OpenTelemetry."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.doubles.server_process import answers, await_ready, free_port
from tests.doubles.waiting import wait_until


class Scraped:
    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def samples(self, name: str, **labels: str) -> Iterator[Sample]:
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    yield sample

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels; an error if there is none."""
        found = [sample.value for sample in self.samples(name, **labels)]
        assert found, f"no series {name} with {labels}"
        return float(sum(found))

    def own(self, name: str, **labels: str) -> float:
        return self.value(f"gpt_oss_{name}", **labels)


async def scraped(client: httpx.AsyncClient) -> Scraped:
    """Through a client whose base URL ends in /v1."""
    answer = await client.get(str(client.base_url).removesuffix("/v1/") + "/metrics", timeout=60)
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text)


def scraped_at(url: str) -> Scraped:
    """`url` has no path."""
    answer = httpx.get(f"{url}/metrics", timeout=60)
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text)


_CONFIG = """\
global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: gpt-oss-server
    static_configs: [{{targets: {targets}}}]
"""


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        parsed = httpx.get(f"{self.url}/api/v1/{path}", params=query, timeout=180).json()
        assert parsed["status"] == "success", f"{query}: {parsed.get('error')}"
        return parsed["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        return wait_until(lambda: self.query(expression), f"{expression} has no series")


def tool(name: str) -> str:
    """The path of a program of Debian's package, or a skip that says how to install it."""
    if (found := shutil.which(name)) is None:
        pytest.skip(f"{name} is not installed: apt install prometheus")
    return found


@contextmanager
def scraping(servers: Sequence[str], folder: Path, rules: Path) -> Iterator[Prometheus]:
    """`servers` are URLs without a path."""
    targets = [server.removeprefix("http://") for server in servers]
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=rules, targets=targets))
    url = f"http://127.0.0.1:{free_port()}"
    places = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
    command = [tool("prometheus"), *places, f"--web.listen-address={url.removeprefix('http://')}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            await_ready(process, lambda: answers(f"{url}/-/ready"), (folder / "prometheus.log").read_text)
            yield Prometheus(url)
        finally:
            process.terminate()
            process.wait(30)


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
