"""POST /v1/decisions."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

import inference
from gpt_oss_server.apis.decisions.request import parse_request
from gpt_oss_server.apis.decisions.run import lay_out
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from inference.engine import Sampling
from tests.doubles.serving import scripted, serving
from tests.doubles.stored import known

TICKET = "I was charged twice for the renewal, and nobody answers."
TWICE: dict[str, Any] = {"type": "predicate", "instructions": "The customer paid twice.", "name": "twice"}
KIND: dict[str, Any] = {
    "type": "choice",
    "instructions": "Classify the ticket.",
    "choices": [{"value": "billing"}, {"value": "true", "description": "errors"}, {"value": True}],
}
ANGER: dict[str, Any] = {
    "type": "score",
    "instructions": "How angry is the customer?",
    "levels": [{"label": "calm"}, {"label": "annoyed", "description": "complains"}, {"label": "furious"}],
}
QUESTIONS = [TWICE, KIND, ANGER]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(inference.load("tiny", device="cpu", progress=False)) as base:
        yield base


def decided(url: str, **body: Any) -> dict[str, Any]:
    body = {"input": TICKET, "questions": QUESTIONS, **body}
    return dict(httpx.post(f"{url}/decisions", json=body, timeout=60).json())


def test_each_kind_of_question_has_its_answer(client: openai.OpenAI) -> None:
    made: Any = client.decisions.create(model="tiny", input=TICKET, questions=QUESTIONS)
    predicate, choice, score = made.answers
    assert (predicate.type, predicate.name, choice.name) == ("predicate", "twice", None)
    assert 0 < predicate.probability < 1
    shares = {(type(each.value), each.value): each.probability for each in choice.probabilities}
    assert set(shares) == {(str, "billing"), (str, "true"), (bool, True)}
    assert choice.confidence == max(shares.values()) == shares[type(choice.choice), choice.choice]
    levels = [(each.value, each.label) for each in score.probabilities]
    assert levels == [(0, "calm"), (1, "annoyed"), (2, "furious")]
    assert score.score == pytest.approx(sum(each.value * each.probability for each in score.probabilities))
    for answer in (choice, score):
        assert sum(each.probability for each in answer.probabilities) == pytest.approx(1)
    assert made.usage.output_tokens == len(QUESTIONS)


async def test_a_probability_is_that_of_the_answer_scored_by_itself(url: str) -> None:
    """Each answer is appended to its prompt, whose own tokens the engine scores."""
    engine = inference.load("tiny", device="cpu", progress=False)
    served = Served(engine)
    asked = lay_out(parse_request({"input": TICKET, "questions": QUESTIONS}), served.work(LOCAL))
    found = (await asyncio.to_thread(decided, url))["answers"]
    shown = [[each["probability"] for each in answer["probabilities"]] for answer in found[1:]]
    shown.insert(0, [found[0]["probability"], 1 - found[0]["probability"]])
    for end, answers, probabilities in zip(asked.ends, asked.answers, shown, strict=True):
        alone = []
        for answer in answers:
            sampling = Sampling(max_tokens=1, prompt_logprobs=0)
            steps = [step async for step in engine.generate((*asked.shared, *end, answer), sampling)]
            *_, scored = known(steps[0].prompt_logprobs)
            alone.append(math.exp(known(scored).logprob))
        assert [each / sum(alone) for each in alone] == pytest.approx(probabilities, abs=1e-4)
    await engine.close()


def test_many_questions_read_the_input_once_and_keep_their_order(url: str) -> None:
    many = [{**TWICE, "name": str(at), "instructions": f"It is {at} o'clock."} for at in range(60)]
    whole = " ".join(f"Line {number} says nothing of the time." for number in range(40))
    together = decided(url, input=whole, questions=many)
    assert [answer["name"] for answer in together["answers"]] == [str(at) for at in range(60)]
    for at in (0, 17, 59):
        [alone] = decided(url, input=whole, questions=[many[at]])["answers"]
        assert alone["probability"] == pytest.approx(together["answers"][at]["probability"], abs=1e-4)
    again = decided(url, input=whole, questions=many)["usage"]
    assert again["input_tokens_details"]["cached_tokens"] > 400
    assert again["input_tokens"] < 3_000, "the input counts once"


def test_messages_calls_and_json_are_read(url: str) -> None:
    items: list[dict[str, Any]] = [
        {"role": "system", "content": "Judge kindly."},
        {"role": "user", "content": [{"type": "input_json", "data": {"order": [7, "späti"]}}]},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "shipped"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "It is on its way."}]},
    ]
    served = Served(inference.load("random:tiny", device="cpu", progress=False))
    asked = lay_out(parse_request({"input": items, "questions": [TWICE]}), served.work(LOCAL))
    prompt = served.models.first.encoding.decode((*asked.shared, *asked.ends[0]))
    for words in ("Judge kindly.", '{"order": [7, "späti"]}', "to=functions.look", "shipped", "on its way"):
        assert words in prompt
    assert prompt.endswith("<|start|>assistant<|channel|>final<|message|>")
    assert "answers" in decided(url, input=items)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"questions": []}, "questions", "questions"),
        ({"questions": [TWICE] * 401}, "questions", "400"),
        ({"questions": [{"type": "choice", "instructions": "?"}]}, "questions[0].choices", "needs `choices`"),
        ({"questions": [{**TWICE, "levels": ANGER["levels"]}]}, "questions[0].levels", "has no `levels`"),
        ({"questions": [{**KIND, "choices": [{"value": "a"}] * 2}]}, "questions[0].choices", "once"),
        ({"questions": [{**TWICE, "instructions": [{"type": "input_json"}]}]}, None, "an object or an array"),
        ({"input": []}, "input", "empty"),
        ({"input": [{"type": "message", "role": "nobody", "content": "x"}]}, "input[0].role", "role"),
        ({"input": "word " * 140_000}, "input", "maximum context"),
        ({"temperature_": 1, "n_probs": 3}, "n_probs", "does not serve"),
    ],
)
def test_a_wrong_request_is_named(url: str, body: dict[str, Any], param: str | None, words: str) -> None:
    error = decided(url, **body)["error"]
    assert words in error["message"]
    assert param is None or error["param"] == param


def test_images_in_a_question_are_refused_where_the_operator_wants_this() -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,"}
    engine = inference.load("random:tiny", device="cpu", progress=False)
    with serving(engine, Settings(images="refuse")) as url:
        error = decided(url, questions=[{**TWICE, "instructions": [picture]}])["error"]
    assert error["param"] == "questions[0].instructions[0]"


def test_an_engine_without_probabilities_is_refused() -> None:
    with serving(scripted("Hello.<|return|>")) as url:
        error = decided(url)["error"]
    assert error["code"] == "unsupported_parameter"
    assert "llama-server do" in error["message"]
