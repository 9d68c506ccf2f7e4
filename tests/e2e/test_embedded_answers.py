"""The embedded model's answers on all three APIs: forms, fixed lengths, and turns that end."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.random_tests.seeds import pairs
from tests.doubles.serving import serving
from tests.e2e.test_embedded_model import TIMER, WEATHER, function

QUESTION = "What is the capital of France?"
BEGINNING = "The capital of France is"
CITIES = {"city": {"enum": ["Paris", "Rome"]}}
SCHEMA = {"type": "object", "properties": CITIES, "required": ["city"], "additionalProperties": False}
CITY = r'\{\s*"city"\s*:\s*"(Paris|Rome)"\s*\}'


@dataclass(frozen=True)
class Made:
    text: str
    tokens: int
    ended: str  # "stop" or "length"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(inference.load("tiny"), Settings(model="tiny")) as base:
        yield base


def post(url: str, path: str, **body: Any) -> Any:
    answer = httpx.post(f"{url}/{path}", json={"temperature": 0, **body}, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(url: str, limit: int, **fields: Any) -> Made:
    messages = [{"role": "user", "content": QUESTION}]
    made = post(url, "chat/completions", messages=messages, max_tokens=limit, **fields)
    [choice] = made["choices"]
    return Made(choice["message"]["content"], made["usage"]["completion_tokens"], choice["finish_reason"])


def completion(url: str, limit: int, **fields: Any) -> Made:
    made = post(url, "completions", prompt=BEGINNING, max_tokens=limit, **fields)
    [choice] = made["choices"]
    return Made(choice["text"], made["usage"]["completion_tokens"], choice["finish_reason"])


def response(url: str, limit: int, **fields: Any) -> Made:
    fields = {"reasoning": {"effort": "none"}, "max_output_tokens": limit, **fields}
    made = post(url, "responses", input=QUESTION, **fields)
    text = "".join(item["content"][0]["text"] for item in made["output"] if item["type"] == "message")
    ended = "stop" if made["status"] == "completed" else "length"
    return Made(text, made["usage"]["output_tokens"], ended)


EVERY_API = pytest.mark.parametrize("ask", [chat, completion, response])


@pytest.fixture(scope="module")
def answers(url: str) -> dict[Any, Made]:
    """Those that the model ends by itself, without any further field."""
    return {ask: ask(url, 100) for ask in (chat, completion, response)}


@EVERY_API
def test_a_text_of_any_length_can_be_had(url: str, answers: dict[Any, Made], ask: Any) -> None:
    natural = answers[ask]
    assert (natural.ended, natural.tokens < 60) == ("stop", True)
    more = natural.tokens + 8
    for fields in ({"ignore_eos": True}, {"min_tokens": more}, {"ignore_eos": True, "min_tokens": more}):
        made = ask(url, more, **fields)
        assert (made.tokens, made.ended) == (more, "length")
        assert made.text.startswith(natural.text), "it continues the text that it would have ended"


@EVERY_API
def test_a_text_ends_by_itself_after_the_least_tokens(url: str, answers: dict[Any, Made], ask: Any) -> None:
    natural = answers[ask]
    before_end = natural.tokens - 1
    assert ask(url, 200, min_tokens=before_end) == natural
    assert ask(url, 200, min_tokens=before_end + 1).tokens > natural.tokens


def test_a_stream_of_a_fixed_length_has_text_up_to_its_end(url: str) -> None:
    options = {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    messages = [{"role": "user", "content": QUESTION}]
    body = {"messages": messages, "max_completion_tokens": 60, **options}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=120) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert sum(bool(delta.get("content") or delta.get("reasoning")) for delta in deltas) > 40
    assert chunks[-1]["usage"]["completion_tokens"] == 60


FORMS: list[tuple[dict[str, Any], str]] = [
    ({"structured_outputs": {"choice": ["red", "dark green"]}}, "red|dark green"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"structured_outputs": {"regex": "[a-c]{3}-\\d{2}"}}, "[a-c]{3}-[0-9]{2}"),
    ({"guided_regex": "x/y{2}"}, "x/yy"),
    ({"regex": "k\n{1,2}l"}, "k\n{1,2}l"),
    ({"structured_outputs": {"grammar": 'root ::= "a"{5,5}'}}, "a{5}"),
    ({"guided_grammar": 'root ::= ("x" | "y") digit\ndigit ::= [0-9] # one'}, "[xy][0-9]"),
    ({"grammar": 'start: "<" WORD ">"\nWORD: /[a-d]{2,4}/'}, "<[a-d]{2,4}>"),
    ({"ebnf": 'root ::= "é" | "東"'}, "é|東"),
    ({"structured_outputs": {"json": SCHEMA}}, CITY),
    ({"guided_json": json.dumps(SCHEMA)}, CITY),
    ({"json_schema": SCHEMA}, CITY),
    ({"guided_choice": ["yes", "no"], "ignore_eos": True}, "yes|no"),
]
WITH_EACH_API = (0, 2, 6, 11, 14)  # the others with responses alone; the rest are proofs
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("ask", "fields", "pattern"),
    [
        (completion, {"response_format": RESPONSE_FORMAT}, CITY),
        *(
            pytest.param(
                *(ask, *form),
                id=f"{ask.__name__}-{str(form)[:40]}",
                marks=[] if ask is response or place in WITH_EACH_API else pytest.mark.proof,
            )
            for ask in (chat, completion, response)
            for place, form in enumerate(FORMS)
        ),
    ],
)
def test_an_answer_has_the_form_under_each_name(
    url: str, ask: Any, fields: dict[str, Any], pattern: str
) -> None:
    made = ask(url, 200, **fields)
    assert re.fullmatch(pattern, made.text), made.text
    assert made.ended == "stop"


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
def bounded() -> Iterator[str]:
    with serving(inference.load("tiny"), Settings(model="tiny", repetition_limit=REPETITION)) as url:
        yield url


def check_call(name: str, arguments: str) -> None:
    names, schema = set(json.loads(arguments)), PROPERTIES[name]
    assert set(schema["required"]) <= names <= set(schema["properties"]), (name, arguments)


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
def test_a_response_ends(bounded: str, question: str, tools: list[dict[str, Any]]) -> None:
    check_response(post(bounded, "responses", input=question, tools=tools, parallel_tool_calls=True))


@turns(QUESTIONS[1:3])  # not the pairs of the responses
def test_a_completion_ends(bounded: str, question: str, tools: list[dict[str, Any]]) -> None:
    functions = [
        {"type": "function", "function": {key: tool[key] for key in tool if key != "type"}} for tool in tools
    ]
    more = {"tools": functions, "parallel_tool_calls": True} if tools else {}
    completion = post(bounded, "chat/completions", messages=[{"role": "user", "content": question}], **more)
    (choice,) = completion["choices"]
    assert completion["usage"]["completion_tokens"] < MOST
    assert "<|" not in (choice["message"]["content"] or "")
    assert (choice["finish_reason"] == "length") == (choice.get("stop_reason") == "repetition")
    if choice["finish_reason"] == "tool_calls":
        for call in choice["message"]["tool_calls"]:
            check_call(call["function"]["name"], call["function"]["arguments"])


def test_json_mode_ends(bounded: str) -> None:
    messages = [{"role": "user", "content": "Give me JSON."}]
    completion = post(bounded, "chat/completions", messages=messages, response_format={"type": "json_object"})
    assert completion["usage"]["completion_tokens"] < MOST
    (choice,) = completion["choices"]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_a_compaction_ends_and_the_conversation_continues(bounded: str) -> None:
    history = [
        {"role": "user", "content": "My name is Alice."},
        {"role": "assistant", "content": "Hello Alice! Nice to meet you."},
    ]
    compacted = post(bounded, "responses/compact", model=None, input=history)
    assert compacted["usage"]["output_tokens"] <= 256
    question = {"role": "user", "content": "Who are you?"}
    check_response(post(bounded, "responses", input=[*compacted["output"], question]))
    trigger = post(bounded, "responses", input=[*history, {"type": "compaction_trigger"}])
    assert (trigger["status"], [item["type"] for item in trigger["output"]]) == ("completed", ["compaction"])
    assert trigger["usage"]["output_tokens"] <= 256


@pytest.mark.parametrize("start", ["I am", "Paris is", "Sure, "])
def test_an_answer_that_the_request_begins_comes_once(bounded: str, start: str) -> None:
    messages = [{"role": "user", "content": "Who are you?"}]
    last = {"role": "assistant", "content": start}
    completion = post(bounded, "chat/completions", messages=[*messages, last], continue_final_message=True)
    (choice,) = completion["choices"]
    assert choice["finish_reason"] == "stop"
    assert "reasoning" not in choice["message"]
    assert "\n\n" not in choice["message"]["content"]
    assert choice["message"]["content"].count("model") <= 1
