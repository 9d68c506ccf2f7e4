"""The wire of llama-server, against a double that has its traps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

import inference
from inference.engine import (
    CheckpointError,
    Finish,
    ModelNotFound,
    Sampling,
)
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import RemoteContract, connected, model_tokens
from tests.doubles.engines.llama_double import LlamaDouble, leaves_a_character_unfinished

pytestmark = pytest.mark.anyio


@pytest.fixture
async def double() -> AsyncIterator[LlamaDouble]:
    async with LlamaDouble() as double:
        yield double


class TestLlama(RemoteContract):
    kind = "llama"

    @pytest.fixture
    async def double(self) -> AsyncIterator[LlamaDouble]:
        async with LlamaDouble() as double:
            yield double


async def test_the_model_is_named_after_its_file(double: LlamaDouble) -> None:
    engine = await connected(double, "llama")
    assert (engine.info.name, engine.info.context_length) == ("double", 599)


async def test_ids_that_the_stream_does_not_show_are_read_again(double: LlamaDouble) -> None:
    tokens = model_tokens(40)
    unseen = sum(leaves_a_character_unfinished(token) for token in tokens)
    assert unseen >= 3, "the model must fall into the trap"
    found = await generated(await connected(double, "llama"))
    assert found.tokens == tokens


async def test_the_last_token_may_be_one_that_the_stream_does_not_show(double: LlamaDouble) -> None:
    tokens = model_tokens(40)
    limit = next(place for place, token in enumerate(tokens, 1) if leaves_a_character_unfinished(token))
    found = await generated(await connected(double, "llama"), replace(GREEDY, max_tokens=limit))
    assert (found.tokens, found.finish) == (tokens[:limit], Finish.LENGTH)


async def test_a_sampled_request_is_repeated_with_its_seed(double: LlamaDouble) -> None:
    engine = await connected(double, "llama")
    sampling = replace(GREEDY, temperature=1.0, seed=7)
    double.requests.clear()
    first = await generated(engine, sampling)
    assert any(leaves_a_character_unfinished(token) for token in first.tokens)
    streamed = [body for _, body in double.requests if body["stream"]]
    repeated = [body for _, body in double.requests if not body["stream"]]
    assert repeated
    assert {body["seed"] for body in repeated} <= {body["seed"] for body in streamed}
    assert len(first.tokens) == 40
    # Each request continues the one before with a seed of its own.
    assert all(one["seed"] != other["seed"] for one, other in pairwise(streamed))
    assert (await generated(engine, sampling)).tokens == first.tokens
    assert (await generated(engine, replace(sampling, seed=8))).tokens != first.tokens


async def test_a_repetition_that_goes_another_way_keeps_what_was_sent(
    double: LlamaDouble, caplog: pytest.LogCaptureFixture
) -> None:
    double.wavers = True
    engine = await connected(double, "llama")
    found = await generated(engine, replace(GREEDY, temperature=1.0, seed=7))
    assert (len(found.tokens), found.finish) == (40, Finish.LENGTH)
    assert "sampled again" in caplog.text


async def test_unseen_tokens_have_their_own_logprobs(double: LlamaDouble) -> None:
    found = await generated(await connected(double, "llama"), replace(GREEDY, logprobs=2))
    entries = [entry for step in found.steps for entry in step.logprobs or ()]
    assert [entry.token for entry in entries] == list(found.tokens)
    for entry in entries:
        assert (entry.logprob, entry.top) == (-0.5, ((entry.token, -0.5), (entry.token + 1, -1.5)))


async def test_progress_is_not_taken_for_tokens(double: LlamaDouble) -> None:
    found = await generated(await connected(double, "llama"))
    assert 0 not in found.tokens
    assert [step.cached_tokens for step in found.steps][:2] == [3, 0]


async def test_an_end_that_is_no_stop_id_is_sampled_past() -> None:
    call = 200012

    def model(tokens: object) -> int:
        length = len(tokens)  # type: ignore[arg-type]
        return call if length == len(PROMPT) + 4 else length

    async with LlamaDouble(model) as double:
        engine = await connected(double, "llama")
        past = await generated(engine, replace(GREEDY, max_tokens=9))
        assert past.tokens == (5, 6, 7, 8, call, 10, 11, 12, 13)
        stopped = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({call})))
        assert (stopped.tokens, stopped.finish) == ((5, 6, 7, 8, call), Finish.STOP)
        banned = replace(GREEDY, max_tokens=6, ignored_stop_ids=frozenset({call}))
        assert (await generated(engine, banned)).tokens == (5, 6, 7, 8, 13, 10)
        least = replace(GREEDY, max_tokens=9, min_tokens=7, stop_token_ids=frozenset({call}))
        assert call not in (await generated(engine, least)).tokens[:7]


async def test_every_sampler_of_the_server_is_set(double: LlamaDouble) -> None:
    engine = await connected(double, "llama")
    double.requests.clear()
    await generated(engine, Sampling(max_tokens=3, temperature=0.5, top_p=0.9, top_k=7, min_p=0.1))
    _, body = double.requests[0]
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.5, 0.9, 7, 0.1)
    assert (body["repeat_penalty"], body["dry_multiplier"], body["xtc_probability"]) == (1.0, 0.0, 0.0)
    assert body["samplers"] == ["penalties", "temperature", "top_k", "top_p", "min_p"]
    assert double.headers[-1]["connection"] == "close"


async def test_a_model_with_another_vocabulary_is_refused() -> None:
    async with LlamaDouble(vocabulary=32_000) as double:
        with pytest.raises(CheckpointError, match="32000 token ids"):
            await connected(double, "llama")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is no URL"),
        ("ftp://here", "is no URL"),
        ("http://a:b@here", "--engine-key"),
        ("http://here:port", "is no URL"),
        ("http://a,", "is no URL"),
        ("http://a,http://a", "one address twice"),
    ],
)
def test_a_wrong_address_is_a_sentence(url: str, words: str) -> None:
    with pytest.raises(ModelNotFound, match=words):
        inference.load(f"llama:{url}")
