"""A real Prometheus scrapes servers under load: the dashboard shows data, and the alerts are valid."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.doubles.commands import script
from tests.doubles.observing.figures import Prometheus, scraped_at, scraping, tool
from tests.doubles.server_process import serving

pytestmark = pytest.mark.observers

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
VARIABLES = {"$job": "gpt-oss-server", "$instance": ".*", "$__rate_interval": "60s"}
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"harbour"}<|call|>'
ANSWER = "<|channel|>final<|message|>It is 40 metres deep.<|return|>"
SLIP = "<|channel|>final<|message|>Hello!<|start|>assistant"
LONG = "word " * 3000
ROUNDS = 4


def queries() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


def promtool(*words: str, text: str = "") -> str:
    done = subprocess.run([tool("promtool"), *words], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def alerts() -> dict[str, str]:
    promtool("check", "rules", str(RULES))
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, list[str]]]:
    """Prometheus after a load, and the URLs of the embedded model's server and of a scripted one."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "pages").mkdir()
    (folder / "pages" / "harbour.md").write_text("# Harbour\n\nIt is 40 metres deep.\n")
    store, pages = f"sqlite:{folder / 'store.sqlite'}", f"local:{folder / 'pages'}"
    turns = script(folder, SEARCH, ANSWER, SLIP)
    scripted = ("--model", turns, "--browser", pages, "--store", store)
    with (
        serving("--context", "2048", "--metrics-names", "both") as model,
        serving(*scripted) as tools,
        scraping([model.url, tools.url], folder, RULES) as prometheus,
    ):
        prometheus.wait_for("count(gpt_oss_server_info) == 2")
        for _ in range(ROUNDS):
            load(model.api, tools.api)
            time.sleep(4)  # further scrapes: a rate needs two
        yield prometheus, [model.url, tools.url]


def load(model: str, tools: str) -> None:
    """What a day brings: answers, streams, long inputs, background runs, tools, and clients that leave."""
    short: dict[str, Any] = {"max_output_tokens": 24}
    requests: list[tuple[str, dict[str, Any]]] = [
        *[(f"{model}/responses", {"input": f"Count to {n}.", **short}) for n in range(4)],
        (f"{model}/responses", {"input": LONG, "stream": True}),
        (f"{model}/responses", {"input": "Hi", "background": True, **short}),
        (f"{model}/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}),
        (f"{model}/completions", {"prompt": "Once upon", "max_tokens": 8}),
        *[(f"{tools}/responses", {"input": "How deep?", "tools": [{"type": "web_search"}]})] * 3,
        (f"{tools}/conversations", {}),
    ]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda each: httpx.post(each[0], json=each[1], timeout=120), requests))
    assert {answer.status_code for answer in answers} == {200}
    httpx.get(f"{tools}/responses/resp_none", timeout=60)


@pytest.mark.parametrize(("title", "expression"), list(queries()), ids=lambda each: str(each)[:60])
def test_each_query_of_the_dashboard_returns_data(
    title: str, expression: str, loaded: tuple[Prometheus, list[str]]
) -> None:
    prometheus, _ = loaded
    found = prometheus.wait_for(expression)
    values = [series["value"][1] for series in found]
    assert not all(value == "NaN" for value in values), f"{title}: {expression} has no value"


def test_each_alert_is_loaded_and_its_series_exist(loaded: tuple[Prometheus, list[str]]) -> None:
    prometheus, _ = loaded
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == set(alerts())
    prometheus.wait_for("count(up == 1) == 2")
    for name, expression in alerts().items():
        prometheus.query(expression)  # raises where Prometheus refuses it
        for series in re.findall(r"\b(?:gpt_oss|process)_\w+|\bup\b", expression):
            assert prometheus.wait_for(series), f"{name} watches {series}, which no server has"


def test_the_alert_of_a_server_that_is_down_goes_off(tmp_path: Path) -> None:
    with scraping(["http://127.0.0.1:9"], tmp_path, RULES) as prometheus:
        prometheus.wait_for(alerts()["GptOssServerDown"])
        prometheus.wait_for('ALERTS{alertname="GptOssServerDown", alertstate="pending"}')


def test_prometheus_has_what_the_servers_report(loaded: tuple[Prometheus, list[str]]) -> None:
    prometheus, urls = loaded
    for url in urls:
        figures, instance = scraped_at(url), url.removeprefix("http://")
        for name in ("prompt_tokens_total", "output_tokens_total", "turns_total"):
            prometheus.wait_for(f'sum(gpt_oss_{name}{{instance="{instance}"}}) == {figures.own(name)}')
    prometheus.wait_for(f"sum(vllm:request_success_total) >= {ROUNDS}")


@pytest.mark.parametrize("index", [0, 1])
def test_promtool_accepts_the_figures_under_load(index: int, loaded: tuple[Prometheus, list[str]]) -> None:
    own = "\n".join(line for line in scraped_at(loaded[1][index]).text.splitlines() if "vllm:" not in line)
    assert promtool("check", "metrics", text=own + "\n") == ""


def test_alerts_go_off_when_they_should_and_not_before() -> None:
    promtool("test", "rules", str(Path(__file__).with_name("alerts_test.yml")))


def test_the_example_configuration_is_valid() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
