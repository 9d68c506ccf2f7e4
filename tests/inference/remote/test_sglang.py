"""The wire of SGLang, against a double that has its traps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from inference.engine import CheckpointError, EngineBusy, EngineFailed, Finish, Sampling
from inference.grammar import Notation
from tests.contracts.ending_contract import EndingContract
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import connected, ends_at, model_tokens
from tests.doubles.engines.http_double import Refusal
from tests.doubles.engines.sglang_double import END, SglangDouble
from tests.doubles.engines.written import Written
from tests.doubles.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def double() -> AsyncIterator[SglangDouble]:
    async with SglangDouble() as double:
        yield double


class TestSglang(EndingContract):
    """Each chunk repeats all tokens, as without flags."""

    kind = "sglang"

    @pytest.fixture
    def double(self, double: SglangDouble) -> SglangDouble:
        return double


class TestSglangWithFurtherTokensOnly(EndingContract):
    kind = "sglang"

    @pytest.fixture
    def double(self, double: SglangDouble) -> SglangDouble:
        double.incremental = True
        return double


class TestSglangWithSeveralTokensInAChunk(EndingContract):
    """Chunks that repeat may be ahead of their own counts."""

    kind = "sglang"

    @pytest.fixture
    def double(self, double: SglangDouble) -> SglangDouble:
        double.at_once, double.hurries = 3, True
        return double


STREAMS = [(False, False), (False, True), (True, False)]


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 40])
@pytest.mark.parametrize(("incremental", "hurries"), STREAMS)
async def test_any_way_of_streaming_gives_the_same_tokens_and_scores(
    double: SglangDouble, at_once: int, incremental: bool, hurries: bool
) -> None:
    double.at_once, double.incremental, double.hurries = at_once, incremental, hurries
    found = await generated(await connected(double, "sglang"), replace(GREEDY, logprobs=2))
    assert found.tokens == model_tokens(40)
    entries = [entry for step in found.steps for entry in step.logprobs or ()]
    assert [entry.token for entry in entries] == list(found.tokens)
    for entry in entries:
        assert (entry.logprob, entry.top) == (-0.5, ((entry.token, -0.5), (entry.token + 1, -1.5)))
    assert sum(step.cached_tokens for step in found.steps) == 3


async def test_scores_without_alternatives(double: SglangDouble) -> None:
    found = await generated(await connected(double, "sglang"), replace(GREEDY, logprobs=0))
    entries = [entry for step in found.steps for entry in step.logprobs or ()]
    assert [(entry.token, entry.top) for entry in entries] == [(token, ()) for token in model_tokens(40)]


async def test_a_chunk_that_lost_a_token_is_a_failure(double: SglangDouble) -> None:
    engine = await connected(double, "sglang")
    double.incremental, double.at_once, double.loses_tokens = True, 3, True
    with pytest.raises(EngineFailed, match="left tokens out"):
        await generated(engine)


async def test_a_stream_that_repeats_is_named_at_the_start(
    double: SglangDouble, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "inference")
    await connected(double, "sglang")
    assert "--incremental-streaming-output" in caplog.text
    caplog.clear()
    double.incremental = True
    await connected(double, "sglang")
    assert not caplog.text


@pytest.mark.parametrize("described", [True, False])
async def test_the_context_is_its_longest_prompt(double: SglangDouble, described: bool) -> None:
    double.describes_itself = described
    engine = await connected(double, "sglang")
    assert (engine.info.name, engine.info.context_length) == ("model", 600)
    whole = await generated(engine, replace(GREEDY, max_tokens=None))
    assert (len(whole.tokens), whole.finish) == (600 - len(PROMPT), Finish.LENGTH)


@pytest.mark.parametrize("seeds", [True, False])
async def test_seeds_count_where_the_server_was_started_to_obey_them(
    double: SglangDouble, seeds: bool
) -> None:
    double.seeds = seeds
    engine = await connected(double, "sglang")
    assert engine.info.ignores == (frozenset() if seeds else {"seed"})


async def test_each_request_of_a_generation_has_a_seed_and_a_name_of_its_own() -> None:
    async with SglangDouble(ends_at(4, END)) as double:
        engine = await connected(double, "sglang")
        double.requests.clear()
        await generated(engine, replace(GREEDY, seed=7))
        first, second = (body for _, body in double.requests)
        assert first["sampling_params"]["sampling_seed"] != second["sampling_params"]["sampling_seed"]
        assert first["rid"] != second["rid"], "it refuses a name that still runs"


async def test_every_sampling_field_is_sent(double: SglangDouble) -> None:
    engine = await connected(double, "sglang")
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
        logit_bias={5: 1.5},
        cache_salt="salt",
        priority=4,
    )
    await generated(engine, sampling)
    _, body = double.requests[0]
    wanted = body["sampling_params"]
    for name in ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"):
        assert wanted[name] == getattr(sampling, name)
    assert (wanted["logit_bias"], wanted["max_new_tokens"]) == ({"5": 1.5}, 3)
    assert wanted["stop_token_ids"] == [199999, 200002, 200012]
    assert (body["cache_salt"], "priority" in body) == ("salt", False)
    double.requests.clear()
    await generated(engine, Sampling(max_tokens=3, cache_salt=""))
    _, body = double.requests[0]
    wanted = body["sampling_params"]
    assert not {"sampling_seed", "logit_bias", "ebnf"} & set(wanted)
    assert "cache_salt" not in body
    neutral = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    assert [wanted[name] for name in neutral] == [1.0, 1.0, -1, 0.0, 1.0]


async def test_a_penalty_that_counts_otherwise_is_not_honoured(double: SglangDouble) -> None:
    assert "repetition_penalty" not in (await connected(double, "sglang")).info.honours


async def test_a_generation_that_is_abandoned_is_aborted_by_name(double: SglangDouble) -> None:
    """A closed connection alone ends it after two seconds."""
    engine = await connected(double, "sglang")
    double.pace = 0.01
    stream = engine.generate(PROMPT, replace(GREEDY, max_tokens=None))
    await anext(stream)
    name = double.requests[-1][1]["rid"]
    await stream.aclose()
    await until(lambda: double.aborted)
    assert double.aborted == [name]
    double.pace = 0.0
    double.requests.clear()
    await generated(engine)
    await asyncio.sleep(0.1)
    assert [path for path, _ in double.requests] == ["/generate"], "one that ended needs no abort"


async def test_an_abort_that_needs_another_key_is_left_to_the_connection(double: SglangDouble) -> None:
    double.admin_key = "of an admin"
    engine = await connected(double, "sglang", engine_key="usual")
    double.pace = 0.01
    stream = engine.generate(PROMPT, replace(GREEDY, max_tokens=None))
    await anext(stream)
    await stream.aclose()
    await until(lambda: not double.streaming and double.requests[-1][0] == "/abort_request")
    assert (double.streaming, double.aborted) == (0, [])
    double.pace = 0.0
    assert (await generated(engine)).tokens == model_tokens(40)


REASONS: list[tuple[dict[str, Any], str]] = [
    ({"type": "abort", "message": "Abort in waiting queue"}, "Abort in waiting queue"),
    ({"type": "abort", "message": "out of memory", "status_code": 500}, "out of memory"),
    ({"type": "stop", "matched": "NaN happened"}, "NaN happened"),
]


@pytest.mark.parametrize(("reason", "words"), REASONS)
async def test_an_end_that_is_none_is_continued_a_few_times(
    double: SglangDouble, reason: dict[str, Any], words: str
) -> None:
    engine = await connected(double, "sglang")
    double.abort, double.aborts_after = reason, 5
    tokens: list[int] = []

    async def read() -> None:
        async for step in engine.generate(PROMPT, GREEDY):
            tokens.extend(step.tokens)

    with pytest.raises(EngineFailed, match=words):
        await read()
    assert tuple(tokens) == model_tokens(20)


async def test_a_queue_that_is_full_is_reported_in_the_stream(double: SglangDouble) -> None:
    engine = await connected(double, "sglang")
    double.abort = {"type": "abort", "message": "The request queue is full.", "status_code": 503}
    with pytest.raises(EngineBusy, match="queue is full"):
        await generated(engine)


async def test_what_is_wrong_with_a_request_is_reported_in_the_stream(double: SglangDouble) -> None:
    engine = await connected(double, "sglang")
    with pytest.raises(EngineFailed, match="frequency_penalty must be"):
        await generated(engine, replace(GREEDY, frequency_penalty=3.0))
    double.refusal = Refusal(400, {"error": "sampling_params: unknown field"})
    with pytest.raises(EngineFailed, match="unknown field"):
        await generated(engine)


async def test_a_prompt_that_was_cut_is_a_failure(double: SglangDouble) -> None:
    double.truncates = True
    with pytest.raises(EngineFailed, match="other tokens than it was sent"):
        await connected(double, "sglang")


async def test_another_server_is_not_taken_for_it(double: SglangDouble) -> None:
    with pytest.raises(EngineFailed):
        await connected(double, "vllm")
    double.has_ids = False
    with pytest.raises(CheckpointError, match=r"SGLang at .* returned no token ids"):
        await connected(double, "sglang")


async def test_each_request_has_the_rest_of_the_grammar() -> None:
    async with SglangDouble(ends_at(4, END)) as double:
        double.parses_reasoning = True
        engine = await connected(double, "sglang")
        assert engine.info.notation is Notation.XGRAMMAR
        double.requests.clear()
        await generated(engine, replace(GREEDY, max_tokens=8, continued=(3, 4), grammar=Written(END)))
        wanted = [body["sampling_params"] for _, body in double.requests]
        assert [each["ebnf"] for each in wanted] == [
            "xgrammar after [3, 4]",
            f"xgrammar after {[3, 4, 5, 6, 7, 8, END]}",
        ]
        assert {77, END} <= set(wanted[0]["stop_token_ids"]), "the server ends where the grammar does"
        assert double.unbound == 0, "the reasoning is part of the grammar"
