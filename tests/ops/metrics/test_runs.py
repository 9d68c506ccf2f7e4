"""Figures of runs: tokens as answers report them, statuses, times, slips and clients that leave."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings
from inference.engine import Sampling, Step
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.observing.figures import scraped
from tests.doubles.serving import leave_in_the_middle, scripted, serving
from tests.doubles.waiting import until_found

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
ANSWER = f"<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant{HELLO}"
PATHS = {
    "responses": ("/responses", {"input": "Hi"}),
    "chat": ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "completions": ("/completions", {"prompt": "Hi"}),
}


def answering(text: str = ANSWER, **options: Any) -> ReplayEngine:
    return ReplayEngine(load_encoding().encode_special(text), **options)


def tokens_of(usage: dict[str, Any]) -> list[int]:
    """Input, cached, output and reasoning tokens, in the form of either API."""
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
    """Finds the first three tokens of each prompt in its cache."""

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
    """The next scrape continues from there: nothing counts twice."""
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
