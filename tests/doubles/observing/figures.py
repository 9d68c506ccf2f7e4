"""The figures of a server, read as Prometheus reads them."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.doubles.server_process import answers, await_ready, free_port


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


_SECONDS = 180  # generous: the machine may be busy
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
        parsed = httpx.get(f"{self.url}/api/v1/{path}", params=query, timeout=_SECONDS).json()
        assert parsed["status"] == "success", f"{query}: {parsed.get('error')}"
        return parsed["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        until = time.monotonic() + _SECONDS
        while not (found := self.query(expression)):
            assert time.monotonic() < until, f"{expression} has no series after {_SECONDS} s"
            time.sleep(0.2)
        return found


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
