"""The figures of a server, read as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Scraped:
    """One answer of `/metrics`."""

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
