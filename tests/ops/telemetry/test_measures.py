"""Metrics by the GenAI conventions, as the SDK's reader in memory has them."""

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.observing.figures import Measured
from tests.doubles.serving import leave_in_the_middle, scripted, serving
from tests.doubles.waiting import until

SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"harbour secret-query"}<|call|>'
NOWHERE = '<|channel|>analysis to=browser.dance code<|message|>{"query":"harbour"}<|call|>'
ANSWER = "<|channel|>final<|message|>The answer has some tokens.<|return|>"
REQUEST, OPERATION = "gen_ai.server.request.duration", "gen_ai.client.operation.duration"
FIRST, PER_TOKEN = "gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"
USAGE, TOOL = "gen_ai.client.token.usage", "gen_ai.execute_tool.duration"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [
        ("/responses", {"input": "Hi"}, "chat"),
        ("/chat/completions", {"messages": MESSAGES}, "chat"),
        ("/completions", {"prompt": "Hi", "max_tokens": 8}, "text_completion"),
    ],
)
@pytest.mark.parametrize("names", ["own", "off"])
async def test_a_request_of_each_api(path: str, body: dict[str, Any], operation: str, names: str) -> None:
    measured = Measured()
    api = Api(scripted(ANSWER), Settings(metrics_names=names), meter_provider=measured.provider)
    usage = (await api.post(path, **body))["usage"]
    expected = {"operation.name": operation, "provider.name": "gpt-oss-server", "request.model": "scripted"}
    assert measured.point(REQUEST).attributes == {f"gen_ai.{name}": expected[name] for name in expected}
    given, output = ("input", "output") if "input_tokens" in usage else ("prompt", "completion")
    assert measured.point(USAGE, gen_ai_token_type="input").sum == usage[f"{given}_tokens"]
    assert measured.point(USAGE, gen_ai_token_type="output").sum == usage[f"{output}_tokens"]
    whole, first, each = measured.point(REQUEST), measured.point(FIRST), measured.point(PER_TOKEN)
    assert whole.count == first.count == each.count == measured.point(OPERATION).count == 1
    assert 0 < first.sum <= whole.sum == measured.point(OPERATION).sum
    assert 0 <= each.sum * (usage[f"{output}_tokens"] - 1) <= whole.sum


async def test_the_names_units_and_buckets_are_those_of_the_conventions() -> None:
    measured = Measured()
    await Api(scripted(ANSWER), meter_provider=measured.provider).create()
    units = {name: metric.unit for name, metric in measured.metrics.items()}
    assert units == {USAGE: "{token}", REQUEST: "s", OPERATION: "s", FIRST: "s", PER_TOKEN: "s"}
    assert measured.point(USAGE, gen_ai_token_type="input").explicit_bounds[-2:] == (16777216, 67108864)
    assert measured.point(REQUEST).explicit_bounds[:2] == (0.01, 0.02)
    assert measured.point(OPERATION).explicit_bounds[-1] == pytest.approx(81.92)


async def test_each_choice_has_a_first_token_and_the_request_counts_once() -> None:
    measured = Measured()
    api = Api(scripted(ANSWER, loop=True), meter_provider=measured.provider)
    await api.post("/chat/completions", messages=MESSAGES, n=3)
    assert measured.point(FIRST).count == measured.point(PER_TOKEN).count == 3
    assert measured.point(REQUEST).count == measured.point(USAGE, gen_ai_token_type="output").count == 1


async def test_tools_by_name_and_outcome(tmp_path: Path) -> None:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nIt is 40 metres deep.\n")
    measured = Measured()
    settings = Settings(browser=f"local:{tmp_path}", python="off")
    api = Api(scripted(SEARCH, NOWHERE, ANSWER), settings, meter_provider=measured.provider)
    await api.create(tools=[{"type": "web_search"}])
    calls = measured.points(TOOL, gen_ai_tool_name="browser", gen_ai_operation_name="execute_tool")
    assert [dict(call.attributes or {}).get("error.type") for call in calls] == [None, "failed"]
    assert measured.point(FIRST).count == 1, "one turn, however many generations"
    assert measured.point(PER_TOKEN).count == 3
    assert "secret" not in str(measured.metrics)


async def test_a_failure_is_its_code_and_has_no_times_of_tokens() -> None:
    measured = Measured()
    api = Api(ReplayEngine([1, 2, 3, 4], fails_after=2), meter_provider=measured.provider)
    await api.refused("/completions", prompt="Hi", max_tokens=8)
    assert measured.point(REQUEST, error_type="server_error").count == 1
    assert not measured.points(FIRST)
    assert not measured.points(PER_TOKEN)


async def test_a_client_that_leaves_is_counted() -> None:
    measured = Measured()
    engine = scripted(ANSWER, loop=True, tokens_per_second=3)
    with serving(engine, meter_provider=measured.provider) as url:
        await leave_in_the_middle(f"{url}/responses", {"input": "Hi", "stream": True}, engine)
        await until(lambda: bool(measured.points(REQUEST)))
    assert measured.point(REQUEST, error_type="disconnected").count == 1
    assert measured.point(USAGE, gen_ai_token_type="input").sum > 0


async def test_a_client_cannot_make_up_series() -> None:
    measured = Measured()
    settings = Settings(served_model_name=("*", "alias"))
    api = Api(scripted(ANSWER, loop=True), settings, meter_provider=measured.provider)
    for model in ("made-up-1", "made-up-2", "alias", "scripted"):
        await api.create(model=model)
    models = {str((point.attributes or {})["gen_ai.request.model"]) for point in measured.points(REQUEST)}
    assert models == {"scripted", "alias"}
