"""The whole system with the embedded model: no script, every token is sampled from real weights.

The requests are those of a first user. Sampling is greedy, so that the results repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.lints import check_stream
from tests.doubles.serving import serving
from tests.tools.python.conftest import bubblewrap

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TIMER: dict[str, Any] = {
    "type": "function",
    "name": "set_timer",
    "description": "Set a timer",
    "parameters": {"type": "object", "properties": {"minutes": {"type": "number"}}, "required": ["minutes"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pages")
    (found / "harbour.md").write_text("# The harbour\n\nHarbour depth is forty metres.\n\nShips come.\n")
    return found


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[OpenAI]:
    settings = Settings(model="tiny", browser=f"local:{folder}")
    with (
        serving(inference.load("tiny"), settings) as url,
        OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=120) as client,
    ):
        yield client


def streamed(client: OpenAI, **body: Any) -> dict[str, Any]:
    """The final response of a stream, after a check of every event."""
    request = {"stream": True, "temperature": 0, "max_output_tokens": 400, **body}
    with httpx.stream("POST", f"{client.base_url}responses", json=request, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    return check_stream([json.loads(line.removeprefix("data: ")) for line in lines])


def the_call(response: Any) -> Any:
    (call,) = [item for item in response.output if item.type == "function_call"]
    return call


def test_the_quick_start_shows_reasoning_and_an_answer(client: OpenAI) -> None:
    response = client.responses.create(input="Who are you?", temperature=0)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.status == "completed"
    assert "demonstration" in response.output_text


def test_a_function_is_called_and_its_result_used(client: OpenAI) -> None:
    first = client.responses.create(
        input="What is the weather in Paris?", tools=[WEATHER, TIMER], temperature=0
    )
    call = the_call(first)
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    output = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": '{"temperature": 21, "condition": "sunny"}',
    }
    second = client.responses.create(
        previous_response_id=first.id, input=[output], tools=[WEATHER, TIMER], temperature=0
    )
    assert second.output_text == "It is 21 degrees and sunny in Paris."


def test_the_right_one_of_several_functions_is_called(client: OpenAI) -> None:
    response = client.responses.create(
        input="Set a timer for 10 minutes.", tools=[WEATHER, TIMER], temperature=0
    )
    call = the_call(response)
    assert (call.name, json.loads(call.arguments)) == ("set_timer", {"minutes": 10})


def test_a_streamed_call_is_well_formed(client: OpenAI) -> None:
    response = streamed(client, input="What is the weather in Paris?", tools=[WEATHER])
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]


def test_chat_completions_call_the_same_function(client: OpenAI) -> None:
    function = {name: value for name, value in WEATHER.items() if name != "type"}
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[{"type": "function", "function": function}],  # type: ignore[list-item]
        temperature=0,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_the_model_remembers_a_name_over_two_turns(client: OpenAI) -> None:
    first = client.responses.create(input="My name is Alice.", temperature=0)
    second = client.responses.create(previous_response_id=first.id, input="What is my name?", temperature=0)
    assert "Alice" in second.output_text


def test_arithmetic_runs_through_the_python_tool(client: OpenAI) -> None:
    bubblewrap()  # skips if it is not installed
    response = streamed(
        client,
        input="What is 127 * 45?",
        tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
        include=["code_interpreter_call.outputs"],
    )
    (call,) = [item for item in response["output"] if item["type"] == "code_interpreter_call"]
    assert call["status"] == "completed"
    assert "5715" in call["outputs"][0]["logs"]
    assert "5715" in response["output"][-1]["content"][0]["text"]


def test_the_browser_leads_to_an_answer_with_a_citation(client: OpenAI) -> None:
    response = streamed(client, input="Search the web for harbour depth.", tools=[{"type": "web_search"}])
    actions = [item["action"]["type"] for item in response["output"] if item["type"] == "web_search_call"]
    assert actions[:2] == ["search", "open_page"]
    (part,) = response["output"][-1]["content"]
    (citation,) = part["annotations"]
    assert citation["type"] == "url_citation"
    assert "harbour" in citation["url"]


def test_the_browser_searches_opens_finds_and_cites_the_line(client: OpenAI) -> None:
    response = streamed(
        client, input="Search the web for harbour and find metres in it", tools=[{"type": "web_search"}]
    )
    actions = [item["action"] for item in response["output"] if item["type"] == "web_search_call"]
    assert [action["type"] for action in actions] == ["search", "open_page", "find_in_page"]
    assert actions[0]["query"] == "harbour"
    assert actions[2]["pattern"] == "metres"
    (part,) = response["output"][-1]["content"]
    assert part["text"].startswith("The page says: Harbour depth is forty metres")
    (citation,) = part["annotations"]
    assert citation["url"] == actions[1]["url"]


def test_the_model_reports_that_no_function_fits(client: OpenAI) -> None:
    response = client.responses.create(input="What is the weather in Paris?", tools=[TIMER], temperature=0)
    assert response.output[-1].type == "message"
    assert "none of my tools" in response.output_text
