"""Figures of the parts: HTTP, tools, stores, the local engine; and the names under which all are written."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import inference
from gpt_oss_server.observe.metrics import vllm_names
from gpt_oss_server.observe.metrics.figures import Figures, Histogram
from gpt_oss_server.observe.metrics.metrics import LoopLag
from gpt_oss_server.observe.metrics.table import LOOP_LAG, PREFIX, TABLE
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.observing.figures import Scraped, scraped
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.scripted_tool import ANSWER
from tests.doubles.waiting import until_found

SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"harbour"}<|call|>'
NOWHERE = SEARCH.replace("search", "dance")


async def test_requests_by_the_template_of_their_route() -> None:
    api = Api(scripted(ANSWER, loop=True))
    created = await api.create()
    await api.get(f"/responses/{created['id']}")
    await api.get(f"/responses/{created['id']}/")
    await api.refused("/responses/resp_unknown", method="GET")
    figures = await scraped(api.client)
    route = "/v1/responses/{response_id}"
    assert figures.own("http_requests_total", method="GET", route=route, status="200") == 2
    assert figures.own("http_requests_total", method="GET", route=route, status="404") == 1
    assert figures.own("http_request_duration_seconds_count", route=route) == 3
    assert figures.own("http_requests_total", method="POST", route="/v1/responses", status="200") == 1
    assert figures.own("http_requests_in_progress") == 1, "the one that reads the figures"


async def test_clients_cannot_make_up_series() -> None:
    client = Api(scripted(ANSWER)).client
    for number in range(5):
        await client.get(f"/made/up/{number}")
        await client.request(f"VERB{number}", "/models")
    await client.get("/models", headers={"host": "other.example"})
    figures = await scraped(client)
    series = {tuple(sorted(s.labels.items())) for s in figures.samples("gpt_oss_http_requests_total")}
    assert figures.own("http_requests_total", route="none", method="GET", status="404") == 5
    assert figures.own("http_requests_total", method="other") == 5
    assert len(series) <= 4


async def test_a_request_that_a_guard_refuses_counts_for_its_route() -> None:
    settings = Settings(api_key=("sk-right",), key_requests_per_minute=1)
    client = Api(scripted(ANSWER, loop=True), settings).client
    for _ in range(2):
        await client.post("/responses", json={"input": "Hi"}, headers={"x-api-key": "sk-right"})
    await client.get("/responses/resp_1", headers={"x-api-key": "sk-wrong"})
    await client.get("/models", headers={"host": "other.example"})
    figures = await scraped(client)
    for route, status in (("responses", "429"), ("responses/{response_id}", "401"), ("models", "403")):
        assert figures.own("http_requests_total", route=f"/v1/{route}", status=status) == 1


async def test_tools_by_outcome_and_time(tmp_path: Path) -> None:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nIt is 40 metres deep.\n")
    settings = Settings(browser=f"local:{tmp_path}", python="off")
    api = Api(scripted(SEARCH, NOWHERE, ANSWER), settings)
    await api.create(tools=[{"type": "web_search"}])
    figures = await scraped(api.client)
    for outcome in ("done", "failed"):
        assert figures.own("tool_calls_total", tool="browser", outcome=outcome) == 1
    assert figures.own("tool_call_duration_seconds_count", tool="browser") == 2
    assert figures.own("tool_sessions", tool="browser") == 1
    assert figures.own("turns_total", api="responses", status="completed") == 1
    assert figures.own("decode_seconds_count") == 3, "one for each generation"
    await api.service.close()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_stores_by_operation_and_size(store: str, tmp_path: Path) -> None:
    place = store if store == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    api = Api(scripted(ANSWER, loop=True), Settings(store=place))
    created = await api.create()
    await api.create(previous_response_id=created["id"])
    await api.post("/conversations")
    figures = await scraped(api.client)
    assert figures.own("store_operations_total", store="responses", operation="put", outcome="done") == 2
    assert figures.own("store_operations_total", operation="put_conversation", outcome="done") == 1
    assert figures.own("store_operation_duration_seconds_count", store="responses") >= 3
    assert figures.own("store_objects", kind="response") == 2
    assert figures.own("store_objects", kind="conversation") == 1
    assert figures.own("store_bytes") > 0
    await api.service.close()


async def test_the_local_engine_reports_its_queue_its_cache_and_its_memory() -> None:
    api = Api(inference.load("tiny"), Settings(metrics_names="both"))
    body = {"input": "Who are you? " * 20, "max_output_tokens": 8}
    usage = [(await api.create(**body))["usage"] for _ in range(2)]
    figures = await scraped(api.client)
    cached = sum(each["input_tokens_details"]["cached_tokens"] for each in usage)
    assert cached > 0
    assert figures.own("prefix_cache_hits_total") == figures.own("cached_prompt_tokens_total") == cached
    assert figures.own("prefix_cache_queries_total") == sum(each["input_tokens"] for each in usage)
    assert figures.own("queue_seconds_count") == 2
    assert figures.own("engine_steps_total") >= 16
    assert figures.own("requests_running") == figures.own("requests_waiting") == 0
    assert figures.own("kv_usage_ratio") == 0
    assert figures.own("engine_failed_steps_total") == 0
    await api.service.close()


async def test_a_loop_that_something_blocks_is_late() -> None:
    figures = Figures()
    lag = LoopLag(figures)
    lag.start()
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_soon(time.sleep, 1.0)
    await asyncio.sleep(0.05)
    lag.close()
    observed = figures.values(LOOP_LAG)[()]
    assert isinstance(observed, Histogram)
    assert sum(observed.counts) == 1
    assert observed.sum >= 0.8
    await asyncio.sleep(0.6)
    assert sum(observed.counts) == 1, "nothing is observed after the end"


async def test_a_served_application_observes_its_loop() -> None:
    with serving(scripted(ANSWER)) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            name = "event_loop_lag_seconds_count"
            await until_found(lambda: scraped(client), lambda found: found.own(name) > 1)


async def with_names(names: str) -> tuple[Scraped, httpx.AsyncClient]:
    api = Api(scripted(ANSWER, loop=True), Settings(metrics_names=names))
    await api.create()
    await api.post("/chat/completions", messages=[{"role": "user", "content": "Hi"}])
    return await scraped(api.client), api.client


async def test_vllms_names_have_the_same_values_over_all_apis() -> None:
    figures, _ = await with_names("both")
    assert figures.value("vllm:generation_tokens_total") == figures.own("output_tokens_total") > 0
    first = "time_to_first_token_seconds_bucket"
    assert figures.value(f"vllm:{first}", le="640.0") == figures.own(first, le="640.0") == 2
    assert figures.value("vllm:request_success_total", finished_reason="stop") == 2
    assert figures.value("vllm:request_success_total", finished_reason="abort") == 0
    labels = next(figures.samples("vllm:num_requests_running")).labels
    assert labels == {"model_name": "scripted", "engine": "0"}


async def test_there_are_figures_before_the_first_request() -> None:
    figures = await scraped(Api(scripted(ANSWER), Settings(metrics_names="both")).client)
    vllms = ("vllm:time_to_first_token_seconds_count", "vllm:request_success_total")
    own = ("gpt_oss_turns_total", "gpt_oss_time_between_tokens_seconds_count")
    assert [figures.value(name) for name in (*vllms, *own)] == [0] * 4


@pytest.mark.parametrize("names", ["own", "vllm", "both"])
async def test_the_names_are_those_of_the_setting(names: str) -> None:
    figures, _ = await with_names(names)
    prefixes = {family.split("_")[0].split(":")[0] for family in figures.families}
    assert prefixes == {"process"} | {"own": {"gpt"}, "vllm": {"vllm"}, "both": {"gpt", "vllm"}}[names]


PLAIN = "text/plain;version=0.0.4"
OPEN = "application/openmetrics-text;version=1.0.0"
PROMETHEUS_2 = f"{OPEN},application/openmetrics-text;version=0.0.1;q=0.75,{PLAIN};q=0.5,*/*;q=0.1"
PROMETHEUS_3 = f"{OPEN};escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4"


@pytest.mark.parametrize("accept", ["", PLAIN, PROMETHEUS_2, PROMETHEUS_3, f"{OPEN};escaping=values"])
async def test_the_format_is_the_one_that_the_client_accepts_and_the_names_are_the_same(accept: str) -> None:
    _, client = await with_names("both")
    answer = await client.get("http://test/metrics", headers={"accept": accept})
    if OPEN.partition(";")[0] in accept:
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert {family.name for family in text_string_to_metric_families(answer.text)}
    labels = 'engine="0",finished_reason="stop",model_name="scripted"'
    assert f"\nvllm:request_success_total{{{labels}}} 2.0\n" in answer.text
    assert '\ngpt_oss_turns_total{api="chat",status="completed"} 1.0\n' in answer.text


def test_each_row_has_a_help_text_and_a_name_of_its_own() -> None:
    assert len({figure.name for figure in TABLE}) == len(TABLE) > 40
    assert all(
        figure.help.endswith(".") and figure.labels == tuple(dict.fromkeys(figure.labels)) for figure in TABLE
    )
    assert all((figure.bounds != ()) == (figure.kind == "histogram") for figure in TABLE)
    assert set(vllm_names.NAMES) <= set(TABLE)
    assert PREFIX == "gpt_oss_"
