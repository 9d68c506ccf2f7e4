"""Prompt scores and token ids: extensions of OpenAI's API, most of which need a scoring engine."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from gpt_oss_server.apis.completions.api import start
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from inference.engine import Sampling, Step, TokenLogprob
from tests.doubles.apis.chat_asking import (
    NEXT,
    check_chunks,
    chunks_of,
    completion_of,
    continuing,
    replaying,
    service_of,
)
from tests.doubles.engines.replay import TurnsEngine
from tests.doubles.serving import scripted

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
BEST = "<|channel|>analysis<|message|>Hm.<|end|>" + NEXT + HELLO
GOOD = "<|channel|>final<|message|>Good day!<|return|>"


class Scoring(TurnsEngine):
    """Scores prompts: the token at position i has the score -i, and the next id is slightly likelier."""

    def __init__(self, encoding: Encoding, text: str = BEST) -> None:
        super().__init__(encoding, text)
        self.info = replace(self.info, scores_prompts=True)

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        scores: tuple[TokenLogprob | None, ...] | None = None
        if (top := sampling.prompt_logprobs) is not None:
            pairs = [((token + 1, 0.5 - at), (token, -float(at))) for at, token in enumerate(tokens)]
            scores = (None, *(TokenLogprob(*own, (best, own)[:top]) for best, own in pairs[1:]))
        async with aclosing(super().generate(tokens, sampling)) as steps:
            async for step in steps:
                yield replace(step, prompt_logprobs=scores)
                scores = None


async def text_completion(engine: Any, **body: Any) -> dict[str, Any]:
    return await (await start(LOCAL, body, service_of(engine).served)).wait()


async def test_an_engine_without_scores_refuses_the_field() -> None:
    with pytest.raises(ApiError, match="scripted") as refused:
        await text_completion(scripted("x"), prompt="a", prompt_logprobs=0)
    assert (refused.value.param, refused.value.code) == ("prompt_logprobs", "unsupported_parameter")


async def test_the_scores_of_the_prompt(encoding: Encoding) -> None:
    engine = Scoring(encoding)
    prompt = encoding.encode("Say it")
    whole = await text_completion(engine, prompt=prompt, prompt_logprobs=1, max_tokens=50)
    [choice] = whole["choices"]
    scores = choice["prompt_logprobs"]
    assert len(scores) == len(prompt) == whole["usage"]["prompt_tokens"]
    assert scores[0] is None
    best, own = prompt[1] + 1, prompt[1]
    assert scores[1] == {
        str(best): {"logprob": -0.5, "rank": 1, "decoded_token": encoding.decode([best])},
        str(own): {"logprob": -1.0, "rank": None, "decoded_token": encoding.decode([own])},
    }
    plain = await completion_of(Scoring(encoding))
    assert "prompt_token_ids" not in plain
    assert "token_ids" not in plain["choices"][0]
    assert plain["choices"][0]["stop_reason"] is None


@pytest.mark.parametrize("stream", [True, False])
async def test_token_ids_cover_the_prompt_and_all_output(encoding: Encoding, stream: bool) -> None:
    body: dict[str, Any] = {"return_token_ids": True, "n": 2, **continuing("Well, ")}
    engine = replaying("I see. 🧠<|return|>")
    if stream:
        chunks = await chunks_of(engine, **body)
        assert [place for place, chunk in enumerate(chunks) if "prompt_token_ids" in chunk] == [0]
        whole = check_chunks(chunks)
    else:
        whole = await completion_of(engine, **body)
    assert whole["prompt_token_ids"] == engine.prompts[0]
    for choice in whole["choices"]:
        assert choice["token_ids"] == engine.tokens
        assert choice["message"]["content"] == "I see. 🧠"


async def test_plain_text_is_echoed_with_its_scores(encoding: Encoding) -> None:
    body: dict[str, Any] = {"prompt": "Say 🧠:", "echo": True, "max_tokens": 5}
    whole = await text_completion(Scoring(encoding, GOOD), **body, logprobs=1)
    count = len(encoding.encode("Say 🧠:"))
    [choice] = whole["choices"]
    scores = choice["logprobs"]
    assert choice["text"] == "Say 🧠:finalGood day"
    assert scores["tokens"][0] == "Say"
    assert scores["token_logprobs"][:count] == [None, *(-float(place) for place in range(1, count))]
    assert scores["top_logprobs"][0] is None
    for token, top in list(zip(scores["tokens"], scores["top_logprobs"], strict=True))[1:]:
        assert token == next(iter(top)), "the list begins with the token itself"
        assert len(top) <= 2, "the likeliest one follows"
    offsets = scores["text_offset"]
    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    assert choice["text"][offsets[-2] :] == "Good day"
    body |= {"logprobs": 0, "stream": True}
    run = await start(LOCAL, body, service_of(Scoring(encoding, GOOD)).served)
    first, *rest = [chunk["choices"][0] async for batch in run.chunks() for chunk in batch]
    assert (first["text"], len(first["logprobs"]["tokens"])) == ("Say 🧠:", count)
    assert "".join(choice["text"] for choice in rest) == "finalGood day"
    assert rest[0]["logprobs"]["tokens"] == ["<|channel|>", "final"]
    assert rest[0]["logprobs"]["text_offset"] == [len("Say 🧠:")] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_every_sampled_token_has_a_score_whether_shown_or_not(stream: bool) -> None:
    """Harnesses that rate a text drop the last score, which must belong to the one sampled token."""
    body = {"prompt": "x", "logprobs": 1, "max_tokens": 50, "stream": stream}
    run = await start(LOCAL, body, service_of(scripted("It is so.<|return|>")).served)
    choices = [choice async for batch in run.chunks() for chunk in batch for choice in chunk["choices"]]
    tokens = [token for choice in choices for token in choice["logprobs"]["tokens"]]
    assert tokens == ["It", " is", " so", ".", "<|return|>"]


async def test_tokens_that_split_a_character_are_spelt_as_bytes(encoding: Encoding) -> None:
    """The spelling is the key of an alternative: tokens with the same spelling would share one entry."""
    whole = await text_completion(TurnsEngine(encoding, " 🧠"), prompt="x", logprobs=3, max_tokens=50)
    scores = whole["choices"][0]["logprobs"]
    tokens, alternatives = scores["tokens"], scores["top_logprobs"]
    assert tokens == ["bytes: \\xf0\\x9f", "bytes:\\xa7", "bytes:\\xa0"]
    for token, score, top in zip(tokens, scores["token_logprobs"], alternatives, strict=True):
        assert (len(top), top[token]) == (3, score)


async def test_sequential_choices_equal_concurrent_ones(encoding: Encoding) -> None:
    narrow = Settings(max_concurrent=1, max_waiting=0)
    body = {"n": 2, "temperature": 0}
    sequential = await completion_of(Scoring(encoding), narrow, **body)
    concurrent = await completion_of(Scoring(encoding), **body)
    messages = [choice["message"] for choice in sequential["choices"]]
    assert messages == [choice["message"] for choice in concurrent["choices"]]
    assert sequential["usage"] == concurrent["usage"]


async def test_only_the_prompt_s_scores(encoding: Encoding) -> None:
    """Evaluation harnesses use this to rate a text."""
    texts, body = ["Say it", "Or not"], {"echo": True, "logprobs": 0, "max_tokens": 0}
    whole = await text_completion(Scoring(encoding), prompt=texts, **body)
    for choice, text in zip(whole["choices"], texts, strict=True):
        assert (choice["text"], choice["finish_reason"]) == (text, "length")
        assert choice["logprobs"]["token_logprobs"] == [None, -1.0]
    assert whole["usage"]["completion_tokens"] == 0
    with pytest.raises(ApiError) as refused:
        await text_completion(Scoring(encoding), prompt="x", max_tokens=0)
    assert refused.value.param == "max_tokens"


async def test_plain_text_with_ids_and_scores_of_the_prompt(encoding: Encoding) -> None:
    fields: dict[str, Any] = {"max_tokens": 50, "return_token_ids": True, "prompt_logprobs": 0}
    whole = await text_completion(Scoring(encoding, GOOD), prompt=[5, 6], **fields)
    [choice] = whole["choices"]
    assert choice["token_ids"] == encoding.encode_special(GOOD)
    assert choice["prompt_token_ids"] == [5, 6]
    assert choice["prompt_logprobs"][0] is None
    assert choice["prompt_logprobs"][1]["6"]["logprob"] == -1.0
    assert choice["finish_reason"] == "stop"
