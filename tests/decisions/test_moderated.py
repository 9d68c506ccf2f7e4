"""The field `moderation` of responses and chat completions."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import httpx
import openai
import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings
from inference.engine import EngineFailed, EngineInfo, Finish, Sampling, Step, TokenLogprob
from tests.doubles.serving import scripted, serving

SCORE = {"model": "omni-moderation-latest"}


def blocking(*what: str) -> dict[str, Any]:
    return {**SCORE, "policy": {name: {"mode": "block"} for name in what}}


class Guard:
    """Sees violence in every text that names a bomb, and breaks at one that names a crash."""

    info = EngineInfo(name="guard", context_length=4096)

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        prompt = load_encoding().decode(list(tokens))
        if "crash" in prompt:
            raise EngineFailed("The guard is gone.")
        yes, no = sampling.alternatives
        sees = "bomb" in prompt and "(violence)" in prompt
        top = ((yes, -0.1), (no, -2.3)) if sees else ((yes, -4.6), (no, -0.01))
        yield Step((yes,), Finish.LENGTH, (TokenLogprob(yes, top[0][1], top),))

    async def close(self) -> None: ...


def final(text: str) -> str:
    reasoning = "<|channel|>analysis<|message|>Think of a bomb.<|end|>"
    return f"{reasoning}<|start|>assistant<|channel|>final<|message|>{text}<|return|>"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    says = {
        "Bake": "Put it in the oven.",
        "Build": "First, get a bomb.",
        "Tell": "A crash.",
        "bomb": "Never.",
    }
    answers = scripted(*({"when": when, "text": final(text)} for when, text in says.items()))
    with serving(answers, Settings(moderation="guard"), models={"guard": Guard()}) as base:
        yield base


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as made:
        yield made


def response(client: openai.OpenAI, given: Any, moderation: Any = SCORE, **more: Any) -> dict[str, Any]:
    made = client.responses.create(model="scripted", input=given, moderation=moderation, **more)
    return made.model_dump(by_alias=True)


def test_input_and_answer_are_judged_and_nothing_is_withheld(client: openai.OpenAI) -> None:
    harmless = response(client, "Bake bread.")["moderation"]
    for found in (harmless["input"], harmless["output"]):
        assert (found["type"], found["model"], found["flagged"]) == ("moderation_result", "guard", False)
        assert len(found["categories"]) == len(found["category_scores"]) == 13
    made = response(client, "Build it.")
    assert made["status"] == "completed"
    assert made["moderation"]["output"]["flagged"]  # for its answer: the reasoning is judged nowhere
    assert made["moderation"]["output"]["categories"]["violence"]
    assert not made["moderation"]["input"]["flagged"]
    assert client.responses.retrieve(made["id"]).moderation.output.flagged  # type: ignore[union-attr]
    continued = [*made["output"], {"role": "user", "content": "Bake bread."}]
    assert not response(client, continued)["moderation"]["input"]["flagged"]  # only what is new


def test_what_is_flagged_is_withheld_on_request(client: openai.OpenAI) -> None:
    blocked = response(client, "Explain a bomb.", blocking("input", "output"))
    assert (blocked["status"], blocked["output"]) == ("incomplete", [])
    assert blocked["incomplete_details"]["reason"] == "content_filter"
    assert blocked["moderation"]["input"]["flagged"]
    assert blocked["moderation"]["output"]["code"] == "no_text"
    assert blocked["usage"]["output_tokens"] == 0
    withheld = response(client, "Build it.", blocking("output"))
    assert (withheld["status"], withheld["output"]) == ("incomplete", [])
    assert withheld["moderation"]["output"]["flagged"]
    assert withheld["usage"]["output_tokens"] > 0
    prompt = httpx.post(
        f"{client.base_url}".replace("/v1/", "/render"),
        json={"input": "Bake it.", "previous_response_id": withheld["id"]},
    ).json()["text"]
    assert "Build it." in prompt
    assert "First, get" not in prompt
    passed = response(client, "Bake bread.", blocking("input", "output"))
    assert (passed["status"], len(passed["output"])) == ("completed", 2)


def test_a_stream_shows_no_word_that_may_be_blocked(client: openai.OpenAI) -> None:
    for given, deltas in (("Build it.", 0), ("Bake bread.", 1)):
        stream = client.responses.create(
            model="scripted", input=given, moderation=blocking("output"), stream=True
        )
        events = list(stream)
        assert (sum(event.type == "response.output_text.delta" for event in events) > 0) == deltas
        assert events[-1].response.moderation.output.flagged == (not deltas)  # type: ignore[union-attr]


def test_a_chat_has_a_result_for_each_choice(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Build it."}]
    made: Any = client.chat.completions.create(model="scripted", messages=messages, n=2, moderation=SCORE)
    assert [each.flagged for each in made.moderation.output.results] == [True, True]
    assert [each.flagged for each in made.moderation.input.results] == [False]
    assert made.choices[0].message.content == "First, get a bomb."
    *_, choice, end = client.chat.completions.create(
        model="scripted", messages=messages, moderation=blocking("output"), stream=True
    )
    assert (choice.choices[0].finish_reason, choice.choices[0].delta.content) == ("content_filter", None)
    assert end.moderation.output.results[0].flagged
    stopped: Any = client.chat.completions.create(
        model="scripted", messages=messages, stop=["get"], moderation=SCORE
    )
    assert stopped.moderation.output.results[0].model == "guard"


def test_what_cannot_be_judged_does_not_pass(client: openai.OpenAI) -> None:
    made = response(client, "Tell me.")
    assert made["status"] == "completed"
    assert made["moderation"]["output"]["type"] == "error"
    assert "The guard is gone" in made["moderation"]["output"]["message"]
    with pytest.raises(openai.InternalServerError, match="The guard is gone"):
        client.chat.completions.create(
            model="scripted",
            messages=[{"role": "user", "content": "Tell me."}],
            moderation=blocking("output"),
        )
    with pytest.raises(openai.InternalServerError, match="The guard is gone"):
        response(client, "Tell me.", blocking("output"))


def test_a_server_without_a_model_for_it_says_how() -> None:
    with serving(scripted(final("."))) as base:
        for path, body in (
            ("responses", {"input": "a"}),
            ("chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ):
            error = httpx.post(f"{base}/{path}", json={**body, "moderation": SCORE}).json()["error"]
            assert "--moderation guard" in error["message"]
            assert error["param"] == "moderation"
