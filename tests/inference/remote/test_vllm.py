"""The wire of vLLM, against a double that has its traps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from inference.engine import CheckpointError, EngineFailed, Finish, Sampling
from inference.grammar import Notation
from tests.contracts.ending_contract import EndingContract
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import connected, ends_at, model_tokens
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written

pytestmark = pytest.mark.anyio


@pytest.fixture
async def double() -> AsyncIterator[VllmDouble]:
    async with VllmDouble() as double:
        yield double


class TestVllm(EndingContract):
    kind = "vllm"

    @pytest.fixture
    def double(self, double: VllmDouble) -> VllmDouble:
        return double


class TestVllmWithSeveralTokensInAChunk(EndingContract):
    kind = "vllm"

    @pytest.fixture
    def double(self, double: VllmDouble) -> VllmDouble:
        double.at_once = 3
        return double


async def test_the_model_is_named_without_its_owner(double: VllmDouble) -> None:
    engine = await connected(double, "vllm")
    assert (engine.info.name, engine.info.context_length) == ("model", 600)


async def test_each_request_of_a_generation_has_a_seed_of_its_own() -> None:
    """With one seed, a request that continues would repeat the random numbers of the one before."""
    async with VllmDouble(ends_at(4, END)) as double:
        engine = await connected(double, "vllm")
        double.requests.clear()
        sampling = replace(GREEDY, seed=7)
        await generated(engine, sampling)
        first, second = (body["seed"] for _, body in double.requests)
        assert first != second
        double.requests.clear()
        await generated(engine, sampling)
        assert [body["seed"] for _, body in double.requests] == [first, second]


async def test_its_limits_are_never_its_defaults(double: VllmDouble) -> None:
    engine = await connected(double, "vllm")
    whole = await generated(engine, replace(GREEDY, max_tokens=None))
    assert (len(whole.tokens), whole.finish) == (double.context - len(PROMPT), Finish.LENGTH)


async def test_every_sampling_field_is_sent(double: VllmDouble) -> None:
    engine = await connected(double, "vllm")
    double.requests.clear()
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        seed=3,
        max_tokens=3,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        logit_bias={5: 1.5},
        cache_salt="salt",
        priority=4,
    )
    await generated(engine, sampling)
    _, body = double.requests[0]
    names = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty")
    for name in (*names, "repetition_penalty", "cache_salt"):
        assert body[name] == getattr(sampling, name)
    assert (body["logit_bias"], body["max_tokens"]) == ({"5": 1.5}, 3)
    assert body["stop_token_ids"] == [199999, 200002, 200012]
    double.requests.clear()
    await generated(engine, Sampling(max_tokens=3, cache_salt="", priority=1))
    _, body = double.requests[0]
    assert not {"cache_salt", "priority", "seed", "logit_bias"} & set(body)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_logprobs_are_by_id(double: VllmDouble, at_once: int) -> None:
    double.at_once = at_once
    found = await generated(await connected(double, "vllm"), replace(GREEDY, logprobs=2))
    entries = [entry for step in found.steps for entry in step.logprobs or ()]
    assert [entry.token for entry in entries] == list(found.tokens) == list(model_tokens(40))
    for entry in entries:
        assert (entry.logprob, entry.top) == (-0.5, ((entry.token, -0.5), (entry.token + 1, -1.5)))


async def test_an_unlikely_token_is_none_of_the_likeliest(double: VllmDouble) -> None:
    sampled = replace(GREEDY, temperature=1.0, seed=1, logprobs=2)
    found = await generated(await connected(double, "vllm"), sampled)
    entries = [entry for step in found.steps for entry in step.logprobs or ()]
    assert {len(entry.top) for entry in entries} == {2}
    assert all(entry.token not in dict(entry.top) for entry in entries if entry.logprob == -9.0)


@pytest.mark.parametrize("counts", [True, False])
async def test_cached_tokens_are_counted_where_the_server_counts_them(
    double: VllmDouble, counts: bool
) -> None:
    double.counts_cached = counts
    found = await generated(await connected(double, "vllm"))
    assert sum(step.cached_tokens for step in found.steps) == (3 if counts else 0)


async def test_an_aborted_generation_is_continued_a_few_times(double: VllmDouble) -> None:
    engine = await connected(double, "vllm")
    double.aborts_after = 5
    tokens: list[int] = []

    async def read() -> None:
        async for step in engine.generate(PROMPT, GREEDY):
            tokens.extend(step.tokens)

    with pytest.raises(EngineFailed, match="'abort'"):
        await read()
    assert tuple(tokens) == model_tokens(20)


async def test_an_error_in_a_stream_is_a_failure_with_the_servers_words(double: VllmDouble) -> None:
    engine = await connected(double, "vllm")
    double.fails_after = 5
    with pytest.raises(EngineFailed, match="CUDA error"):
        await generated(engine)


async def test_a_prompt_that_arrives_changed_is_a_failure(double: VllmDouble) -> None:
    double.misreads = True
    with pytest.raises(EngineFailed, match="other tokens than it was sent"):
        await connected(double, "vllm")


async def test_another_server_is_not_taken_for_vllm(double: VllmDouble) -> None:
    double.has_ids = False
    with pytest.raises(CheckpointError, match=r"vLLM at .* returned no token ids"):
        await connected(double, "vllm")
    with pytest.raises(EngineFailed):
        await connected(double, "llama")


async def test_each_request_has_the_rest_of_the_grammar(double: VllmDouble) -> None:
    async with VllmDouble(ends_at(4, END)) as double:
        engine = await connected(double, "vllm")
        assert engine.info.notation is Notation.XGRAMMAR
        double.requests.clear()
        sampling = replace(GREEDY, max_tokens=8, continued=(3, 4), grammar=Written(END))
        await generated(engine, sampling)
        bodies = [body for _, body in double.requests]
        assert [body["structured_outputs"] for body in bodies] == [
            {"grammar": "xgrammar after [3, 4]"},
            {"grammar": f"xgrammar after {[3, 4, 5, 6, 7, 8, END]}"},
        ]
        assert {77, END} <= set(bodies[0]["stop_token_ids"]), "the server ends where the grammar does"


async def test_a_request_that_is_wrong_for_another_reason_stays_refused(double: VllmDouble) -> None:
    engine = await connected(double, "vllm")
    with pytest.raises(EngineFailed, match="bad temperature"):
        await generated(engine, replace(GREEDY, temperature=3.0, grammar=Written(END)))
