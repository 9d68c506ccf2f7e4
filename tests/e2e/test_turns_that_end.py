"""Every turn of the embedded model ends by itself, or soon after it begins to repeat itself.

The questions are those on which such a model runs in circles: long texts, JSON, several calls, summaries.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.contracts.embedded_model_contract import TIMER, WEATHER, function
from tests.doubles.random_tests.seeds import pairs
from tests.doubles.serving import serving

REPETITION = 64
MOST = 388 + REPETITION  # tokens of a turn: what a short answer has, and those of repetition
SEARCH = function("search_files", "Search files by a pattern", "pattern", "string") | {"strict": False}
SEARCH["parameters"]["properties"] |= {"limit": {"type": "integer"}, "kind": {"enum": ["text", "code"]}}
SEARCH["parameters"]["required"].append("kind")
TOOLS = [WEATHER, TIMER, SEARCH]
PROPERTIES = {tool["name"]: tool["parameters"] for tool in TOOLS}
QUESTIONS = [
    "Who are you?",
    "What is the weather in Paris and in Oslo?",
    "Search the files for TODO.",
    "Write a long story about a fox and the sea.",
    "Summarise: " + "The ship left the harbour at noon. " * 30,
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings = Settings(model="tiny", python="off", repetition_limit=REPETITION)
    with serving(inference.load("tiny"), settings) as url:
        yield url


def post(url: str, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/{path}", json={"temperature": 0, "seed": 1, **body}, timeout=300)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def check_call(name: str, arguments: str) -> None:
    given, schema = json.loads(arguments), PROPERTIES[name]
    assert set(schema["required"]) <= set(given) <= set(schema["properties"]), (name, arguments)


def check_response(response: dict[str, Any]) -> None:
    assert response["usage"]["output_tokens"] < MOST
    output = response["output"]
    calls = [(item["name"], item["arguments"]) for item in output if item["type"] == "function_call"]
    texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    assert not [text for text in texts if "<|" in text]
    assert len(set(calls)) == len(calls), "no call is made twice"
    if response["status"] == "incomplete":
        assert "over and over" in response["incomplete_details"]["message"]
        return
    assert response["status"] == "completed"
    assert calls or all(text.strip() for text in texts)
    for call in calls:
        check_call(*call)


def turns(questions: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("question", "tools"), pairs(questions, (TOOLS, [])), ids=lambda value: str(value)[:20]
    )


@turns(QUESTIONS)
def test_a_response_ends(url: str, question: str, tools: list[dict[str, Any]]) -> None:
    check_response(post(url, "responses", input=question, tools=tools, parallel_tool_calls=True))


@turns(QUESTIONS[1:3])  # not the pairs of the responses
def test_a_completion_ends(url: str, question: str, tools: list[dict[str, Any]]) -> None:
    functions = [
        {"type": "function", "function": {key: tool[key] for key in tool if key != "type"}} for tool in tools
    ]
    more = {"tools": functions, "parallel_tool_calls": True} if tools else {}
    completion = post(url, "chat/completions", messages=[{"role": "user", "content": question}], **more)
    (choice,) = completion["choices"]
    assert completion["usage"]["completion_tokens"] < MOST
    assert "<|" not in (choice["message"]["content"] or "")
    assert (choice["finish_reason"] == "length") == (choice.get("stop_reason") == "repetition")
    if choice["finish_reason"] == "tool_calls":
        for call in choice["message"]["tool_calls"]:
            check_call(call["function"]["name"], call["function"]["arguments"])


def test_json_mode_ends(url: str) -> None:
    messages = [{"role": "user", "content": "Give me JSON."}]
    completion = post(url, "chat/completions", messages=messages, response_format={"type": "json_object"})
    assert completion["usage"]["completion_tokens"] < MOST
    (choice,) = completion["choices"]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_a_compaction_ends_and_the_conversation_continues(url: str) -> None:
    history = [
        {"role": "user", "content": "My name is Alice."},
        {"role": "assistant", "content": "Hello Alice! Nice to meet you."},
    ]
    compacted = post(url, "responses/compact", model=None, input=history)
    assert compacted["usage"]["output_tokens"] <= 256
    question = {"role": "user", "content": "Who are you?"}
    check_response(post(url, "responses", input=[*compacted["output"], question]))
    trigger = post(url, "responses", input=[*history, {"type": "compaction_trigger"}])
    assert (trigger["status"], [item["type"] for item in trigger["output"]]) == ("completed", ["compaction"])
    assert trigger["usage"]["output_tokens"] <= 256


@pytest.mark.parametrize("start", ["I am", "Paris is", "Sure, "])
def test_an_answer_that_the_request_begins_comes_once(url: str, start: str) -> None:
    messages = [{"role": "user", "content": "Who are you?"}]
    prefixed = post(url, "chat/completions", messages=messages, response_prefix=start)
    last = {"role": "assistant", "content": start}
    continued = post(url, "chat/completions", messages=[*messages, last], continue_final_message=True)
    for completion in (prefixed, continued):
        (choice,) = completion["choices"]
        assert choice["finish_reason"] == "stop"
        assert "reasoning" not in choice["message"]
        assert "\n\n" not in choice["message"]["content"]
        assert choice["message"]["content"].count("model") <= 1
