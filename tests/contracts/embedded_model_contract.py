"""What a first user does with the embedded model, whatever engine runs its weights.

A subclass provides `client`, the official SDK on a server whose browser reads `pages`. Sampling is greedy, so
that the results repeat.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.doubles.lints import check_stream
from tests.tools.python.conftest import needs_bubblewrap

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


class Weather(BaseModel):
    city: str
    days: int


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pages")
    (found / "harbour.md").write_text("# The harbour\n\nHarbour depth is forty metres.\n\nShips come.\n")
    return found


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


class EmbeddedModelContract:
    @pytest.fixture
    def client(self) -> OpenAI:
        raise NotImplementedError

    def test_the_quick_start_shows_reasoning_and_an_answer(self, client: OpenAI) -> None:
        response = client.responses.create(input="Who are you?", temperature=0)
        assert [item.type for item in response.output] == ["reasoning", "message"]
        assert response.status == "completed"
        assert "demonstration" in response.output_text

    def test_a_function_is_called_and_its_result_used(self, client: OpenAI) -> None:
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

    def test_the_right_one_of_several_functions_is_called(self, client: OpenAI) -> None:
        response = client.responses.create(
            input="Set a timer for 10 minutes.", tools=[WEATHER, TIMER], temperature=0
        )
        call = the_call(response)
        assert (call.name, json.loads(call.arguments)) == ("set_timer", {"minutes": 10})

    def test_a_streamed_call_is_well_formed(self, client: OpenAI) -> None:
        response = streamed(client, input="What is the weather in Paris?", tools=[WEATHER])
        assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]

    def test_chat_completions_call_the_same_function(self, client: OpenAI) -> None:
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

    def test_the_model_remembers_a_name_over_two_turns(self, client: OpenAI) -> None:
        first = client.responses.create(input="My name is Alice.", temperature=0)
        second = client.responses.create(
            previous_response_id=first.id, input="What is my name?", temperature=0
        )
        assert "Alice" in second.output_text

    def test_arithmetic_runs_through_the_python_tool(self, client: OpenAI) -> None:
        needs_bubblewrap()
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

    def test_the_browser_leads_to_an_answer_with_a_citation(self, client: OpenAI) -> None:
        response = streamed(client, input="Search the web for harbour depth.", tools=[{"type": "web_search"}])
        actions = [item["action"]["type"] for item in response["output"] if item["type"] == "web_search_call"]
        assert actions[:2] == ["search", "open_page"]
        (part,) = response["output"][-1]["content"]
        (citation,) = part["annotations"]
        assert citation["type"] == "url_citation"
        assert "harbour" in citation["url"]

    def test_the_browser_searches_opens_finds_and_cites_the_line(self, client: OpenAI) -> None:
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

    def test_the_model_reports_that_no_function_fits(self, client: OpenAI) -> None:
        response = client.responses.create(
            input="What is the weather in Paris?", tools=[TIMER], temperature=0
        )
        assert response.output[-1].type == "message"
        assert "none of my tools" in response.output_text

    def test_the_stream_helper_accumulates_the_final_response(self, client: OpenAI) -> None:
        with client.responses.stream(model="tiny", input="Who are you?", temperature=0) as stream:
            said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        assert final.status == "completed"
        assert said == final.output_text
        assert "demonstration" in said

    def test_an_answer_follows_a_schema(self, client: OpenAI) -> None:
        response = client.responses.parse(
            input="What is the weather in Paris?", text_format=Weather, temperature=0, max_output_tokens=400
        )
        assert response.status == "completed"
        assert isinstance(response.output_parsed, Weather)

    def test_a_forced_function_is_called(self, client: OpenAI) -> None:
        response = client.responses.create(
            input="Hello!",
            tools=[WEATHER, TIMER],
            tool_choice={"type": "function", "name": "set_timer"},
            temperature=0,
            max_output_tokens=400,
        )
        call = the_call(response)
        assert call.name == "set_timer"
        assert isinstance(json.loads(call.arguments)["minutes"], int | float)

    @pytest.mark.parametrize("limit", [1, 2, 12])
    def test_a_truncated_answer_is_incomplete(self, client: OpenAI, limit: int) -> None:
        response = streamed(client, input="Who are you?", max_output_tokens=limit)
        assert response["status"] == "incomplete"
        assert response["incomplete_details"]["reason"] == "max_output_tokens"
        assert response["usage"]["output_tokens"] == limit
        assert "<|" not in json.dumps(response["output"])

    def test_every_token_of_an_answer_has_a_log_probability(self, client: OpenAI) -> None:
        response = client.responses.create(
            input="Who are you?", include=["message.output_text.logprobs"], top_logprobs=3, temperature=0
        )
        part: Any = response.output[-1].content[0]  # type: ignore[union-attr, index]
        assert "".join(entry.token for entry in part.logprobs) == part.text
        assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in part.logprobs)
