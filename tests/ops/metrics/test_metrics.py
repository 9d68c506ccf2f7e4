"""Figures: of runs, as answers report them, and of the parts of a server."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import inference
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.observe.metrics.figures import Figures, Histogram
from gpt_oss_server.observe.metrics.metrics import LoopLag
from gpt_oss_server.observe.metrics.table import LOOP_LAG
from gpt_oss_server.settings import Settings
from inference.engine import Sampling, Step
from tests.doubles.apis.api_client import APIS, Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.observing.figures import Scraped, scraped
from tests.doubles.serving import HELLO, leave_in_the_middle, scripted, serving
from tests.doubles.waiting import until_found

ANSWER = f"<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant{HELLO}"
PATHS = dict(zip(("responses", "chat", "completions"), APIS.items(), strict=True))


def answering(text: str = ANSWER, **options: Any) -> ReplayEngine:
    return ReplayEngine(load_encoding().encode_special(text), **options)


def tokens_of(usage: dict[str, Any]) -> list[int]:
    into = usage.get("input_tokens_details") or usage["prompt_tokens_details"]
    out = usage.get("output_tokens_details") or usage.get("completion_tokens_details") or {}
    return [
        usage.get("input_tokens", usage.get("prompt_tokens")),
        into["cached_tokens"],
        usage.get("output_tokens", usage.get("completion_tokens")),
        out.get("reasoning_tokens", 0),
    ]


NAMES = ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "reasoning_tokens")


class Cached(ReplayEngine):
    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncIterator[Step]:  # type: ignore[override]
        yield Step((), None, None, 3)
        async for step in super().generate(tokens, sampling):
            yield step


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("streams", [False, True])
async def test_tokens_are_those_of_the_usage(api: str, streams: bool) -> None:
    client = Api(Cached(answering().tokens)).client
    path, body = PATHS[api]
    usage = (await client.post(path, json=body)).json()["usage"]
    if streams:
        assert (await client.post(path, json={**body, "stream": True})).status_code == 200
    figures = await scraped(client)
    times = 2 if streams else 1
    assert [figures.own(f"{name}_total", api=api) for name in NAMES] == [n * times for n in tokens_of(usage)]
    assert figures.own("turns_total", api=api, status="completed") == times
    assert figures.own("request_duration_seconds_count", api=api) == times
    assert figures.own("time_to_first_token_seconds_count", api=api) == times
    assert figures.own("request_output_tokens_sum") == tokens_of(usage)[2] * times
    others = [each for each in PATHS if each != api]
    assert all(figures.own("turns_total", api=each) == 0 for each in others)


async def test_each_choice_is_a_turn_and_the_prompt_counts_once() -> None:
    api = Api(answering())
    usage = (await api.post("/chat/completions", **{**PATHS["chat"][1], "n": 3}))["usage"]
    figures = await scraped(api.client)
    assert figures.own("turns_total", api="chat", status="completed") == 3
    assert figures.own("time_to_first_token_seconds_count", api="chat") == 3
    assert figures.own("request_duration_seconds_count", api="chat") == 1
    assert [figures.own(f"{name}_total", api="chat") for name in NAMES] == tokens_of(usage)


async def test_the_times_of_a_generation_fit_into_each_other() -> None:
    api = Api(answering())
    await api.create()
    figures = await scraped(api.client)
    steps = len(answering().tokens) + 1  # and the empty one that ends it
    assert figures.own("time_between_tokens_seconds_count") == steps - 1
    assert figures.own("decode_seconds_sum") == pytest.approx(figures.own("time_between_tokens_seconds_sum"))
    parts = ("queue", "prefill", "decode")
    whole = sum(figures.own(f"{part}_seconds_sum") for part in parts)
    assert 0 < whole <= figures.own("request_duration_seconds_sum")
    assert figures.own("queue_seconds_count") == 0, "this engine does not say how long it waited"


async def test_statuses_of_turns_that_do_not_complete() -> None:
    api = Api(answering())
    await api.create(max_output_tokens=4)
    api.engine.fails_after = 3
    await api.refused("/responses", input="Hi")
    await api.refused("/chat/completions", **PATHS["chat"][1])
    figures = await scraped(api.client)
    for name, status in (("responses", "incomplete"), ("responses", "failed"), ("chat", "failed")):
        assert figures.own("turns_total", api=name, status=status) == 1
    assert figures.own("errors_total", api="responses", code="server_error") == 1
    assert figures.own("requests_running") == 0


async def test_slips_are_counted_by_kind() -> None:
    api = Api(answering("<|channel|>final<|message|>Hello!<|start|>assistant"))
    await api.create()
    figures = await scraped(api.client)
    kinds = {sample.labels["kind"]: sample.value for sample in figures.samples("gpt_oss_harmony_slips_total")}
    assert sum(kinds.values()) >= 1
    assert 0.0 in kinds.values(), "kinds that have not occurred have a series, so that their first is seen"


async def test_a_client_that_leaves_is_counted_with_the_tokens_so_far() -> None:
    engine = scripted(ANSWER, loop=True, tokens_per_second=4)
    with serving(engine) as url:
        await leave_in_the_middle(f"{url}/responses", {"input": "Hi", "stream": True}, engine)
        async with httpx.AsyncClient(base_url=url) as client:
            name = "client_disconnects_total"
            figures = await until_found(lambda: scraped(client), lambda found: found.own(name))
    assert figures.own("turns_total", api="responses", status="disconnected") == 1
    assert figures.own("prompt_tokens_total", api="responses") > 0
    assert figures.own("request_duration_seconds_count", api="responses") == 1


async def test_a_running_answer_counts_before_it_ends() -> None:
    engine = scripted(ANSWER, tokens_per_second=3)
    with serving(engine) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            async with client.stream("POST", "/responses", json={"input": "Hi", "stream": True}) as answer:
                events = answer.aiter_lines()
                async for line in events:
                    if "delta" in line:
                        break
                early = await scraped(client)
                async for _ in events:
                    pass
            late = await scraped(client)
    assert early.own("requests_running") == 1
    assert 0 < early.own("output_tokens_total") < late.own("output_tokens_total") == len(answering().tokens)
    assert early.own("turns_total", api="responses") == 0
    assert late.own("time_between_tokens_seconds_count") >= early.own("time_between_tokens_seconds_count")


async def test_background_runs_by_their_end() -> None:
    api = Api(answering())
    ended = await api.ended((await api.create(background=True))["id"])
    engine = scripted(ANSWER, tokens_per_second=2)
    slow = Api(engine)
    started = await slow.create(background=True)
    await slow.telling(started["id"])
    assert (await scraped(slow.client)).own("background_runs") == 1
    await slow.post(f"/responses/{started['id']}/cancel")
    figures, of_slow = await scraped(api.client), await scraped(slow.client)
    assert ended["status"] == "completed"
    assert figures.own("background_runs_ended_total", status="completed") == 1
    assert of_slow.own("background_runs_ended_total", status="cancelled") == 1
    assert of_slow.own("turns_total", api="responses", status="cancelled") == 1
    assert of_slow.own("background_runs") == of_slow.own("requests_running") == 0


async def test_switched_off_there_are_no_figures() -> None:
    api = Api(answering(), Settings(metrics_names="off"))
    await api.create()
    assert (await api.client.get("http://test/metrics")).status_code == 404


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
    assert '\ngpt_oss_turns_total{api="chat",model="scripted",status="completed"} 1.0\n' in answer.text
