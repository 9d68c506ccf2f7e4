"""What clients of the Responses API rely on, as trials of any server that claims to offer it.

A trial takes the official SDK on a server with the embedded model's weights, and raises if the server's
answer is not what the API promises. Sampling is greedy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai import APIStatusError, OpenAI
from pydantic import BaseModel, ConfigDict

from tests.doubles.lints import check_stream

Trial = Callable[[OpenAI], None]
_LONGEST = 160  # characters of a problem

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
TIMER: dict[str, Any] = {
    "type": "function",
    "name": "set_timer",
    "description": "Set a timer",
    "parameters": {
        "type": "object",
        "properties": {"minutes": {"type": "number"}},
        "required": ["minutes"],
        "additionalProperties": False,
    },
    "strict": True,
}
QUESTION = "What is the weather in Paris?"
OPTIONS: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 300}


class Weather(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str
    days: int


def verdict(trial: Trial, client: OpenAI) -> str:
    """ "ok", or what is wrong, in one line."""
    try:
        trial(client)
    except APIStatusError as error:
        return _short(f"{error.status_code}: {error.message}")
    except Exception as error:  # whatever an SDK raises over an answer that it does not understand
        return _short(f"{type(error).__name__}: {error}")
    return "ok"


def _short(problem: str) -> str:
    line = " ".join(problem.split()).replace("|", "¦")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _calls(output: Any) -> list[Any]:
    return [item for item in output if item.type == "function_call"]


def helper_text(client: OpenAI) -> None:
    with client.responses.stream(input="Who are you?", **OPTIONS) as stream:
        streamed = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.status == "completed", f"status {final.status}"
    assert streamed, "no text was streamed"
    assert streamed == final.output_text, "the final text is not the sum of its deltas"


def helper_reasoning(client: OpenAI) -> None:
    with client.responses.stream(input="Who are you?", **OPTIONS) as stream:
        streamed = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
        final = stream.get_final_response()
    kept = [item for item in final.output if item.type == "reasoning"]
    assert streamed, "no reasoning was streamed"
    assert kept, "the final response has no reasoning"
    assert "".join(part.text for part in kept[0].content or ()) == streamed, "the final reasoning differs"


def helper_call(client: OpenAI) -> None:
    done: list[str] = []
    deltas = ""
    with client.responses.stream(input=QUESTION, tools=[WEATHER], **OPTIONS) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                deltas += event.delta
            elif event.type == "response.function_call_arguments.done":
                done.append(event.arguments)
        final = stream.get_final_response()
    calls = _calls(final.output)
    assert len(calls) == 1, f"{len(calls)} calls in the final response"
    assert done == [calls[0].arguments] == [deltas], "the call's deltas, its end and its item differ"
    assert json.loads(deltas) == {"city": "Paris"}, deltas


def invariants(client: OpenAI) -> None:
    raw = client.responses.create(input=QUESTION, tools=[WEATHER], stream=True, **OPTIONS)
    check_stream([event.to_dict() for event in raw])


def call_and_result(client: OpenAI) -> None:
    """The items are sent back, as clients do that keep the conversation."""
    asked: list[Any] = [{"role": "user", "content": QUESTION}]
    first = client.responses.create(input=asked, tools=[WEATHER], **OPTIONS)
    calls = _calls(first.output)
    assert len(calls) == 1, f"{len(calls)} calls"
    result = {
        "type": "function_call_output",
        "call_id": calls[0].call_id,
        "output": '{"temperature": 21, "condition": "sunny"}',
    }
    history = [*asked, *(item.to_dict() for item in first.output), result]
    second = client.responses.create(input=history, tools=[WEATHER], **OPTIONS)
    assert "21" in second.output_text, f"the result is not used: {second.output_text!r}"


def continued(client: OpenAI) -> None:
    first = client.responses.create(input="My name is Alice.", **OPTIONS)
    second = client.responses.create(input="What is my name?", previous_response_id=first.id, **OPTIONS)
    assert "Alice" in second.output_text, f"the name is lost: {second.output_text!r}"


def _truncated(client: OpenAI, limit: int) -> None:
    options = {**OPTIONS, "max_output_tokens": limit}
    events = list(client.responses.create(input="Who are you?", stream=True, **options))
    response: Any = events[-1].response  # type: ignore[union-attr]
    markup = "<|" in json.dumps([item.to_dict() for item in response.output])
    wrong = [
        words
        for holds, words in (
            (events[-1].type != "response.incomplete", f"the last event is {events[-1].type}"),
            (response.status != "incomplete", f"status {response.status}"),
            (markup, "markup in the output"),
        )
        if holds
    ]
    assert not wrong, ", ".join(wrong)
    assert response.incomplete_details.reason == "max_output_tokens", response.incomplete_details


def truncated_at_1(client: OpenAI) -> None:
    _truncated(client, 1)


def truncated_at_12(client: OpenAI) -> None:
    _truncated(client, 12)


def _chosen(client: OpenAI, choice: Any, text: str) -> list[Any]:
    response = client.responses.create(input=text, tools=[WEATHER, TIMER], tool_choice=choice, **OPTIONS)
    assert response.status == "completed", f"status {response.status}"
    return _calls(response.output)


def choice_required(client: OpenAI) -> None:
    calls = _chosen(client, "required", "Hello!")
    assert calls, "no call"
    json.loads(calls[0].arguments)


def choice_forced(client: OpenAI) -> None:
    calls = _chosen(client, {"type": "function", "name": "set_timer"}, "Hello!")
    assert [call.name for call in calls] == ["set_timer"], f"calls: {[call.name for call in calls]}"
    assert set(json.loads(calls[0].arguments)) == {"minutes"}, calls[0].arguments


def choice_none(client: OpenAI) -> None:
    calls = _chosen(client, "none", QUESTION)
    assert not calls, f"it calls {calls[0].name}"


def schema(client: OpenAI) -> None:
    response = client.responses.parse(input=QUESTION, text_format=Weather, **OPTIONS)
    assert isinstance(response.output_parsed, Weather), f"{response.status}: {response.output_text!r}"


def logprobs(client: OpenAI) -> None:
    include: Any = ["message.output_text.logprobs"]
    response = client.responses.create(input="Who are you?", include=include, top_logprobs=3, **OPTIONS)
    part: Any = response.output[-1].content[0]  # type: ignore[union-attr, index]
    assert part.logprobs, "none in the answer"
    assert "".join(entry.token for entry in part.logprobs) == part.text, "not those of the text's tokens"


def usage(client: OpenAI) -> None:
    response = client.responses.create(input="Who are you?", **OPTIONS)
    counted: Any = response.usage
    assert counted.total_tokens == counted.input_tokens + counted.output_tokens, counted
    assert 0 < counted.output_tokens_details.reasoning_tokens < counted.output_tokens, (
        f"{counted.output_tokens_details.reasoning_tokens} of {counted.output_tokens} are reasoning"
    )


TRIALS: dict[str, Trial] = {
    "stream helper: text": helper_text,
    "stream helper: reasoning": helper_reasoning,
    "stream helper: function call": helper_call,
    "every event of a call's stream": invariants,
    "call, result sent back, answer": call_and_result,
    "`previous_response_id`": continued,
    "truncated after 1 token": truncated_at_1,
    "truncated after 12 tokens": truncated_at_12,
    '`tool_choice: "required"`': choice_required,
    "`tool_choice`: one function": choice_forced,
    '`tool_choice: "none"`': choice_none,
    "strict `json_schema`": schema,
    "log-probabilities": logprobs,
    "`usage`, reasoning counted": usage,
}
