"""What a first user does with the embedded model, on the built-in engine and on those of other programs.

Next to an engine's own API, it prints the table of docs/engines.md; the engine's answers are not judged.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, OpenAI
from pydantic import BaseModel, ConfigDict

from tests.doubles.apis import api_client
from tests.doubles.engines.live import KINDS, live_engine
from tests.doubles.server_process import serving
from tests.tools.python.conftest import needs_bubblewrap


def function(name: str, description: str, field: str, kind: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


WEATHER = function("get_weather", "Get the current weather for a city", "city", "string")
TIMER = function("set_timer", "Set a timer", "minutes", "number")
TOOLS: Any = [WEATHER, TIMER]
QUESTION = "What is the weather in Paris?"
OPTIONS: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 400}


class Weather(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str
    days: int


def created(client: OpenAI, given: Any, **more: Any) -> Any:
    return client.responses.create(input=given, **OPTIONS, **more)


def streamed(client: OpenAI, given: str, **more: Any) -> dict[str, Any]:
    return api_client.streamed(client, **{"input": given, **OPTIONS, **more})


def calls_of(response: Any) -> list[tuple[str, Any]]:
    calls = [item for item in response.output if item.type == "function_call"]
    return [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.fixture(
    scope="module", params=["tiny", *(pytest.param(kind, marks=pytest.mark.engines) for kind in KINDS)]
)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    pages = tmp_path_factory.mktemp("pages")
    (pages / "harbour.md").write_text("# The harbour\n\nHarbour depth is forty metres.\n\nShips come.\n")
    with (
        live_engine(request.param, tmp_path_factory.mktemp("model"), context=4096) as model,
        serving("--model", model, "--browser", f"local:{pages}", "--python", "auto") as server,
        sdk(server.api) as client,
    ):
        yield client


class TestEmbeddedModel:
    def test_the_quick_start_shows_reasoning_and_an_answer(self, client: OpenAI) -> None:
        response = client.responses.create(input="Who are you?", temperature=0)
        assert [item.type for item in response.output] == ["reasoning", "message"]
        assert response.status == "completed"
        assert "demonstration" in response.output_text

    def test_usage_counts_the_reasoning(self, client: OpenAI) -> None:
        usage = created(client, "Who are you?").usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens, "reasoning's tokens"

    def test_a_function_is_called_and_its_result_used(self, client: OpenAI) -> None:
        """The items are sent back, as clients do that keep the conversation."""
        asked: list[Any] = [{"role": "user", "content": QUESTION}]
        first = created(client, asked, tools=TOOLS)
        assert calls_of(first) == [("get_weather", {"city": "Paris"})]
        found = '{"temperature": 21, "condition": "sunny"}'
        result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": found}
        second = created(client, [*asked, *(item.to_dict() for item in first.output), result], tools=TOOLS)
        assert second.output_text == "It is 21 degrees and sunny in Paris."

    def test_the_right_one_of_several_functions_is_called(self, client: OpenAI) -> None:
        response = created(client, "Set a timer for 10 minutes.", tools=TOOLS)
        assert calls_of(response) == [("set_timer", {"minutes": 10})]

    def test_a_streamed_call_is_well_formed(self, client: OpenAI) -> None:
        response = streamed(client, QUESTION, tools=[WEATHER])
        assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]

    def test_chat_completions_call_the_same_function(self, client: OpenAI) -> None:
        tool: Any = {"type": "function", "function": {name: WEATHER[name] for name in ("name", "parameters")}}
        answer: Any = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": QUESTION}], tools=[tool], temperature=0
        )
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        assert (call.type, json.loads(call.function.arguments)) == ("function", {"city": "Paris"})

    def test_the_model_remembers_a_name_over_two_turns(self, client: OpenAI) -> None:
        first = created(client, "My name is Alice.")
        assert "Alice" in created(client, "What is my name?", previous_response_id=first.id).output_text

    def test_arithmetic_runs_through_the_python_tool(self, client: OpenAI) -> None:
        needs_bubblewrap()
        tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
        include = ["code_interpreter_call.outputs"]
        response = streamed(client, "What is 127 * 45?", tools=tools, include=include)
        (call,) = [item for item in response["output"] if item["type"] == "code_interpreter_call"]
        assert call["status"] == "completed"
        assert "5715" in call["outputs"][0]["logs"]
        assert "5715" in response["output"][-1]["content"][0]["text"]

    def test_the_browser_searches_opens_finds_and_cites_the_line(self, client: OpenAI) -> None:
        question = "Search the web for harbour and find metres in it"
        response = streamed(client, question, tools=[{"type": "web_search"}])
        actions = [item["action"] for item in response["output"] if item["type"] == "web_search_call"]
        assert [action["type"] for action in actions] == ["search", "open_page", "find_in_page"]
        assert (actions[0]["query"], actions[2]["pattern"]) == ("harbour", "metres")
        (part,) = response["output"][-1]["content"]
        assert part["text"].startswith("The page says: Harbour depth is forty metres")
        (citation,) = part["annotations"]
        assert (citation["type"], citation["url"]) == ("url_citation", actions[1]["url"])

    def test_the_model_reports_that_no_function_fits(self, client: OpenAI) -> None:
        response = created(client, QUESTION, tools=[TIMER])
        assert response.output[-1].type == "message"
        assert "none of my tools" in response.output_text

    def test_the_stream_helper_accumulates_the_final_response(self, client: OpenAI) -> None:
        texts = {"response.output_text.delta": "", "response.reasoning_text.delta": ""}
        with client.responses.stream(input="Who are you?", **OPTIONS) as stream:
            for event in stream:
                if event.type in texts:
                    texts[event.type] += event.delta
            final: Any = stream.get_final_response()
        assert final.status == "completed"
        answer, reasoning = texts.values()
        assert reasoning == "".join(part.text for part in final.output[0].content)
        assert answer == final.output_text
        assert "demonstration" in answer

    def test_the_stream_helper_accumulates_a_call(self, client: OpenAI) -> None:
        done: list[str] = []
        deltas = ""
        with client.responses.stream(input=QUESTION, tools=[WEATHER], **OPTIONS) as stream:
            for event in stream:
                if event.type == "response.function_call_arguments.delta":
                    deltas += event.delta
                elif event.type == "response.function_call_arguments.done":
                    done.append(event.arguments)
            final = stream.get_final_response()
        assert calls_of(final) == [("get_weather", json.loads(deltas))]
        assert done == [deltas]

    def test_an_answer_follows_a_schema(self, client: OpenAI) -> None:
        response = client.responses.parse(input=QUESTION, text_format=Weather, **OPTIONS)
        assert response.status == "completed"
        assert isinstance(response.output_parsed, Weather)

    def test_tool_choice_is_obeyed(self, client: OpenAI) -> None:
        forced = {"type": "function", "name": "set_timer"}
        [(name, arguments)] = calls_of(created(client, "Hello!", tools=TOOLS, tool_choice=forced))
        assert name == "set_timer"
        assert isinstance(arguments["minutes"], int | float)
        assert calls_of(created(client, "Hello!", tools=TOOLS, tool_choice="required"))

    def test_a_tool_choice_of_none_is_obeyed(self, client: OpenAI) -> None:
        assert not calls_of(created(client, QUESTION, tools=TOOLS, tool_choice="none"))

    @pytest.mark.parametrize("limit", [1, 2, 12])
    def test_a_truncated_answer_is_incomplete(self, client: OpenAI, limit: int) -> None:
        response = streamed(client, "Who are you?", max_output_tokens=limit)
        assert response["status"] == "incomplete"
        assert response["incomplete_details"]["reason"] == "max_output_tokens"
        assert response["usage"]["output_tokens"] == limit
        assert "<|" not in json.dumps(response["output"])

    def test_every_token_of_an_answer_has_a_log_probability(self, client: OpenAI) -> None:
        include = ["message.output_text.logprobs"]
        part = created(client, "Who are you?", include=include, top_logprobs=3).output[-1].content[0]
        assert "".join(entry.token for entry in part.logprobs) == part.text
        assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in part.logprobs)


USER = TestEmbeddedModel()
TRIALS: dict[str, Callable[[OpenAI], None]] = {
    "stream helper: text, reasoning": USER.test_the_stream_helper_accumulates_the_final_response,
    "stream helper: function call": USER.test_the_stream_helper_accumulates_a_call,
    "every event of a call's stream": USER.test_a_streamed_call_is_well_formed,
    "call, result sent back, answer": USER.test_a_function_is_called_and_its_result_used,
    "`previous_response_id`": USER.test_the_model_remembers_a_name_over_two_turns,
    "truncated after 1 token": partial(USER.test_a_truncated_answer_is_incomplete, limit=1),
    "truncated after 12 tokens": partial(USER.test_a_truncated_answer_is_incomplete, limit=12),
    '`tool_choice: "required"`, or one function': USER.test_tool_choice_is_obeyed,
    '`tool_choice: "none"`': USER.test_a_tool_choice_of_none_is_obeyed,
    "strict `json_schema`": USER.test_an_answer_follows_a_schema,
    "log-probabilities": USER.test_every_token_of_an_answer_has_a_log_probability,
    "`usage`, reasoning counted": USER.test_usage_counts_the_reasoning,
}
_FLAGS = {"llama": ("--jinja",), "vllm": ("--enable-auto-tool-choice", "--tool-call-parser", "openai")}


def verdict(trial: Callable[[OpenAI], None], client: OpenAI) -> str:
    """ "ok", or what is wrong, in one line."""
    try:
        trial(client)
    except APIStatusError as error:
        problem = f"{error.status_code}: {error.message}"
    except Exception as error:  # whatever an SDK raises over an answer that it does not understand
        problem = f"{type(error).__name__}: {error}"
    else:
        return "ok"
    return " ".join(problem.split()).replace("|", "¦")[:160]


def sdk(url: str) -> Any:
    return OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=300)


@pytest.mark.engines
@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_succeeds_where_the_engine_alone_may_fail(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        live_engine(kind, tmp_path, *_FLAGS[kind], context=4096) as model,
        serving("--model", model) as own,
        sdk(own.api) as ours,
        sdk(f"{model.removeprefix(f'{kind}:')}/v1") as theirs,
    ):
        found = {name: (verdict(trial, ours), verdict(trial, theirs)) for name, trial in TRIALS.items()}
    with capsys.disabled():
        sys.stdout.write(f"\n| trial | gpt-oss-server on {kind} | {kind} alone |\n|---|---|---|\n")
        sys.stdout.writelines(f"| {name} | {mine} | {alone} |\n" for name, (mine, alone) in found.items())
    assert {name: mine for name, (mine, _) in found.items() if mine != "ok"} == {}
