"""Fixed lengths, and forms of an answer under all their names, with the embedded model on all three APIs.

It reasons before its answers in chat completions, and not in responses.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.serving import serving

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


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(f"{url}/{path}", json={"temperature": 0, **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(url: str, limit: int, **fields: Any) -> Made:
    messages = [{"role": "user", "content": QUESTION}]
    made = post(url, "chat/completions", {"messages": messages, "max_tokens": limit, **fields})
    [choice] = made["choices"]
    return Made(choice["message"]["content"], made["usage"]["completion_tokens"], choice["finish_reason"])


def completion(url: str, limit: int, **fields: Any) -> Made:
    made = post(url, "completions", {"prompt": BEGINNING, "max_tokens": limit, **fields})
    [choice] = made["choices"]
    return Made(choice["text"], made["usage"]["completion_tokens"], choice["finish_reason"])


def response(url: str, limit: int, **fields: Any) -> Made:
    asked = {"input": QUESTION, "reasoning": {"effort": "none"}, "max_output_tokens": limit}
    made = post(url, "responses", {**asked, **fields})
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
    ({"regex_pattern": "[0-9]{4}"}, "[0-9]{4}"),
    ({"structured_outputs": {"grammar": 'root ::= "a"{5,5}'}}, "a{5}"),
    ({"guided_grammar": 'root ::= ("x" | "y") digit\ndigit ::= [0-9] # one'}, "[xy][0-9]"),
    ({"grammar": 'start: "<" WORD ">"\nWORD: /[a-d]{2,4}/'}, "<[a-d]{2,4}>"),
    ({"ebnf": 'root ::= "q"'}, "q"),
    ({"grammar_string": 'root ::= "é" | "東"'}, "é|東"),
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


@EVERY_API
def test_banned_words_and_strings_do_not_appear(url: str, answers: dict[Any, Made], ask: Any) -> None:
    assert "Paris" in answers[ask].text
    for fields in (
        {"bad_words": ["Paris"]},
        {"banned_strings": "pARIS"},
        {"banned_strings": ["is Paris", "is Pari"]},
        {"bad_words": ["France is Paris", "is Pari"]},
    ):
        text = ask(url, 60, **fields).text
        assert text
        assert "is Pari" not in text


@EVERY_API
def test_a_repetition_penalty_changes_the_answer_and_a_neutral_one_does_not(url: str, ask: Any) -> None:
    plain = ask(url, 40)
    assert ask(url, 40, repetition_penalty=1.0) == plain
    assert ask(url, 40, repetition_penalty=2.0).text != plain.text


@EVERY_API
def test_a_stop_id_of_the_request_ends_the_answer(url: str, answers: dict[Any, Made], ask: Any) -> None:
    is_, *_ = httpx.post(f"{url.removesuffix('/v1')}/tokenize", json={"prompt": " Paris"}).json()["tokens"]
    made = ask(url, 100, stop_token_ids=[is_, 200002])
    assert made.ended == "stop"
    assert "Paris" not in made.text
    assert made.tokens < answers[ask].tokens
