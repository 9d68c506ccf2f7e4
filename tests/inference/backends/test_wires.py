"""The wires of llama-server, vLLM and SGLang, against doubles that have their traps."""

import asyncio
import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference
from inference.backends.sglang import SglangEventReader
from inference.engine import CheckpointError, EngineBusy, EngineFailed, Finish, ModelNotFound, Sampling
from inference.remote.wire import Ask
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import (
    EndingContract,
    RemoteContract,
    connected,
    ends_at,
    model_tokens,
    scores,
)
from tests.doubles.engines.http_double import HttpDouble, Refusal
from tests.doubles.engines.llama_double import LlamaDouble, leaves_a_character_unfinished
from tests.doubles.engines.sglang_double import END, SglangDouble
from tests.doubles.engines.vllm_double import VllmDouble
from tests.doubles.engines.written import Written
from tests.doubles.waiting import until

CALL = 200012


class TestLlama(RemoteContract):
    kind, double_type = "llama", LlamaDouble

    async def test_the_model_is_named_after_its_file(self, double: LlamaDouble) -> None:
        info = (await self.connected(double)).info
        assert (info.name, info.context_length) == ("model", 599)

    async def test_the_penalty_counts_the_whole_context(self, double: LlamaDouble) -> None:
        """Newer versions take no -1 for it."""
        await generated(await self.connected(double))
        assert {body["repeat_last_n"] for path, body in double.requests if path == "/completion"} == {600}

    async def test_a_field_that_this_version_does_not_take_is_left_out(
        self, double: LlamaDouble, caplog: pytest.LogCaptureFixture
    ) -> None:
        double.refuses = "top_n_sigma"
        engine = await self.connected(double)
        assert (await generated(engine)).tokens == model_tokens(40)
        assert "does not take `top_n_sigma`" in caplog.text

    async def test_the_models_tokens_fall_into_the_trap(self) -> None:
        """The contract's tests of tokens and scores would prove nothing without."""
        assert sum(map(leaves_a_character_unfinished, model_tokens(40))) >= 3

    async def test_the_last_token_may_be_one_that_the_stream_does_not_show(self, double: LlamaDouble) -> None:
        tokens = model_tokens(40)
        limit = next(place for place, token in enumerate(tokens, 1) if leaves_a_character_unfinished(token))
        found = await generated(await self.connected(double), replace(GREEDY, max_tokens=limit))
        assert (found.tokens, found.finish) == (tokens[:limit], Finish.LENGTH)

    async def test_a_sampled_request_is_repeated_with_its_seed(self, double: LlamaDouble) -> None:
        engine = await self.connected(double)
        sampling = replace(GREEDY, temperature=1.0, seed=7)
        double.requests.clear()
        first = await generated(engine, sampling)
        assert len(first.tokens) == 40
        assert any(leaves_a_character_unfinished(token) for token in first.tokens)
        streamed = [body["seed"] for _, body in double.requests if body["stream"]]
        repeated = {body["seed"] for _, body in double.requests if not body["stream"]}
        assert set() < repeated <= set(streamed)
        assert all(one != other for one, other in pairwise(streamed)), "a seed for each that continues"
        assert (await generated(engine, sampling)).tokens == first.tokens
        assert (await generated(engine, replace(sampling, seed=8))).tokens != first.tokens

    async def test_a_repetition_that_goes_another_way_keeps_what_was_sent(
        self, double: LlamaDouble, caplog: pytest.LogCaptureFixture
    ) -> None:
        double.wavers = True
        found = await generated(await self.connected(double), replace(GREEDY, temperature=1.0, seed=7))
        assert (len(found.tokens), found.finish) == (40, Finish.LENGTH)
        assert "sampled again" in caplog.text

    async def test_progress_is_not_taken_for_tokens(self, double: LlamaDouble) -> None:
        found = await generated(await self.connected(double))
        assert 0 not in found.tokens
        assert [step.cached_tokens for step in found.steps][:2] == [3, 0]

    async def test_an_end_that_is_no_stop_id_is_sampled_past(self, double: LlamaDouble) -> None:
        double.model = ends_at(4, CALL)
        engine = await self.connected(double)
        past = await generated(engine, replace(GREEDY, max_tokens=9))
        assert past.tokens == (5, 6, 7, 8, CALL, 10, 11, 12, 13)
        stopped = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({CALL})))
        assert (stopped.tokens, stopped.finish) == ((5, 6, 7, 8, CALL), Finish.STOP)
        banned = replace(GREEDY, max_tokens=6, ignored_stop_ids=frozenset({CALL}))
        assert CALL not in (await generated(engine, banned)).tokens
        least = replace(GREEDY, max_tokens=9, min_tokens=7, stop_token_ids=frozenset({CALL}))
        assert CALL not in (await generated(engine, least)).tokens[:7]

    async def test_every_sampler_of_the_server_is_set(self, double: LlamaDouble) -> None:
        engine = await self.connected(double)
        double.requests.clear()
        fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1}
        await generated(engine, Sampling(max_tokens=3, **fields))  # type: ignore[arg-type]
        _, body = double.requests[0]
        neutral = {"repeat_penalty": 1.0, "dry_multiplier": 0.0, "xtc_probability": 0.0}
        assert body.items() >= (fields | neutral).items()
        assert body["samplers"] == ["penalties", "temperature", "top_k", "top_p", "min_p"]
        assert double.headers[-1]["connection"] == "close"

    async def test_a_model_with_another_vocabulary_is_refused(self, double: LlamaDouble) -> None:
        double.vocabulary = 32_000
        with pytest.raises(CheckpointError, match="32000 token ids"):
            await self.connected(double)


OTHERS = [(SglangDouble, "vllm"), (VllmDouble, "llama")]


@pytest.mark.anyio
@pytest.mark.parametrize(("double_type", "kind"), OTHERS)
async def test_another_server_is_not_taken_for_it(double_type: type[HttpDouble], kind: str) -> None:
    async with double_type() as double:
        with pytest.raises(EngineFailed):
            await connected(double, kind)


WRONG = dict.fromkeys(("", "ftp://here", "http://here:port", "http://a,"), "is no URL")
WRONG |= {"http://a:b@here": "--engine-key", "http://a,http://a": "one address twice"}


@pytest.mark.parametrize(("url", "words"), WRONG.items())
def test_a_wrong_address_is_a_sentence(url: str, words: str) -> None:
    with pytest.raises(ModelNotFound, match=words):
        inference.load(f"llama:{url}")


class TestVllmWithSeveralTokensInAChunk(EndingContract):
    kind, double_type, traits = "vllm", VllmDouble, {"at_once": 3}


class TestVllm(EndingContract):
    kind, double_type = "vllm", VllmDouble

    async def test_its_limits_are_never_its_defaults(self, double: VllmDouble) -> None:
        engine = await self.connected(double)
        assert (engine.info.name, engine.info.context_length) == ("model", 600)
        whole = await generated(engine, replace(GREEDY, max_tokens=None))
        assert (len(whole.tokens), whole.finish) == (600 - len(PROMPT), Finish.LENGTH)

    async def test_an_unlikely_token_is_none_of_the_likeliest(self, double: VllmDouble) -> None:
        sampling = replace(GREEDY, temperature=1.0, seed=1, logprobs=2)
        entries = scores(await generated(await self.connected(double), sampling))
        assert {len(entry.top) for entry in entries} == {2}
        assert all(entry.token not in dict(entry.top) for entry in entries if entry.logprob == -9.0)

    @pytest.mark.parametrize("counts", [True, False])
    async def test_cached_tokens_are_counted_where_the_server_counts_them(
        self, double: VllmDouble, counts: bool
    ) -> None:
        double.counts_cached = counts
        found = await generated(await self.connected(double))
        assert sum(step.cached_tokens for step in found.steps) == (3 if counts else 0)

    async def test_an_error_in_a_stream_is_a_failure_with_the_servers_words(self, double: VllmDouble) -> None:
        engine = await self.connected(double)
        double.fails_after = 5
        with pytest.raises(EngineFailed, match="CUDA error"):
            await generated(engine)

    async def test_a_prompt_that_arrives_changed_is_a_failure(self, double: VllmDouble) -> None:
        double.misreads = True
        with pytest.raises(EngineFailed, match="other tokens than it was sent"):
            await self.connected(double)

    async def test_a_request_that_is_wrong_for_another_reason_stays_refused(self, double: VllmDouble) -> None:
        engine = await self.connected(double)
        with pytest.raises(EngineFailed, match="bad temperature"):
            await generated(engine, replace(GREEDY, temperature=3.0, grammar=Written(END)))


class SglangContract(EndingContract):
    kind, double_type = "sglang", SglangDouble
    names = {"seed": "sampling_seed", "max_tokens": "max_new_tokens"}  # noqa: RUF012
    no_top_k = -1


class TestSglangWithFurtherTokensOnly(SglangContract):
    traits = {"incremental": True}  # noqa: RUF012


class TestSglangWithSeveralTokensInAChunk(SglangContract):
    traits = {"at_once": 3, "hurries": True}  # noqa: RUF012


STREAMS = [{}, {"hurries": True}, {"incremental": True}]
REASONS: list[tuple[type[Exception], dict[str, Any]]] = [
    (EngineFailed, {"type": "abort", "message": "what happened", "status_code": 500}),
    (EngineFailed, {"type": "stop", "matched": "what happened"}),
    (EngineBusy, {"type": "abort", "message": "what happened", "status_code": 503}),
]


class TestSglang(SglangContract):
    """Each chunk repeats all tokens, as without flags."""

    @pytest.mark.parametrize("at_once", [1, 2, 3, 5, 40])
    @pytest.mark.parametrize("traits", STREAMS, ids=str)
    async def test_any_way_of_streaming_gives_the_same_tokens_and_scores(
        self, double: SglangDouble, at_once: int, traits: dict[str, bool]
    ) -> None:
        vars(double).update(traits, at_once=at_once)
        found = await generated(await self.connected(double), replace(GREEDY, logprobs=0))
        assert found.tokens == model_tokens(40)
        assert [(entry.token, entry.top) for entry in scores(found)] == [(id, ()) for id in found.tokens]
        assert sum(step.cached_tokens for step in found.steps) == 3

    async def test_a_chunk_that_lost_a_token_is_a_failure(self, double: SglangDouble) -> None:
        engine = await self.connected(double)
        double.incremental, double.at_once, double.loses_tokens = True, 3, True
        with pytest.raises(EngineFailed, match="left tokens out"):
            await generated(engine)

    async def test_a_stream_that_repeats_is_named_at_the_start(
        self, double: SglangDouble, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "inference")
        await self.connected(double)
        assert "--incremental-streaming-output" in caplog.text
        caplog.clear()
        double.incremental = True
        await self.connected(double)
        assert not caplog.text

    @pytest.mark.parametrize("described", [True, False])
    async def test_the_context_is_its_longest_prompt(self, double: SglangDouble, described: bool) -> None:
        double.describes_itself = described
        engine = await self.connected(double)
        assert (engine.info.name, engine.info.context_length) == ("model", 600)
        whole = await generated(engine, replace(GREEDY, max_tokens=None))
        assert (len(whole.tokens), whole.finish) == (600 - len(PROMPT), Finish.LENGTH)

    @pytest.mark.parametrize("seeds", [True, False])
    async def test_what_it_counts_otherwise_is_ignored_or_not_honoured(
        self, double: SglangDouble, seeds: bool
    ) -> None:
        double.seeds = seeds
        info = (await self.connected(double)).info
        assert info.ignores == (frozenset() if seeds else {"seed"}), "seeds need a flag of the server"
        assert "repetition_penalty" not in info.honours

    async def test_each_request_has_a_name_of_its_own_and_its_reasoning_is_in_the_grammar(
        self, double: SglangDouble
    ) -> None:
        double.model, double.parses_reasoning = ends_at(4, END), True
        engine = await self.connected(double)
        double.requests.clear()
        await generated(engine, replace(GREEDY, grammar=Written(END)))
        assert double.unbound == 0
        first, second = [body["rid"] for _, body in double.requests]
        assert first != second, "it refuses a name that still runs"

    @pytest.mark.parametrize("admin_key", [None, "of an admin"])
    async def test_a_generation_that_is_abandoned_is_aborted_by_name(
        self, double: SglangDouble, admin_key: str | None
    ) -> None:
        """A closed connection alone ends it after two seconds: it must do where the abort needs a key."""
        double.admin_key = admin_key
        engine = await self.connected(double)
        double.pace = 0.01
        stream = engine.generate(PROMPT, replace(GREEDY, max_tokens=None))
        await anext(stream)
        name = double.requests[-1][1]["rid"]
        await stream.aclose()
        await until(lambda: not double.streaming and double.requests[-1][0] == "/abort_request")
        assert double.aborted == ([name] if admin_key is None else [])
        double.pace = 0.0
        double.requests.clear()
        await generated(engine)
        await asyncio.sleep(0.1)
        assert [path for path, _ in double.requests] == ["/generate"], "one that ended needs no abort"

    @pytest.mark.parametrize(("error", "reason"), REASONS)
    async def test_an_end_that_is_none_has_the_servers_words(
        self, double: SglangDouble, error: type[Exception], reason: dict[str, Any]
    ) -> None:
        engine = await self.connected(double)
        double.abort, double.aborts_after = reason, 0
        with pytest.raises(error, match="what happened"):
            await generated(engine)

    async def test_what_is_wrong_with_a_request_is_reported_in_the_stream(self, double: SglangDouble) -> None:
        engine = await self.connected(double)
        with pytest.raises(EngineFailed, match="frequency_penalty must be"):
            await generated(engine, replace(GREEDY, frequency_penalty=3.0))
        double.refusal = Refusal(400, {"error": "sampling_params: unknown field"})
        with pytest.raises(EngineFailed, match="unknown field"):
            await generated(engine)

    async def test_a_prompt_that_was_cut_is_a_failure(self, double: SglangDouble) -> None:
        double.truncates = True
        with pytest.raises(EngineFailed, match="other tokens than it was sent"):
            await self.connected(double)


ASK, LENGTH = Ask(Sampling(logprobs=1), 0, 1), 3  # of the prompt
SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=12)


def chunk(tokens: list[int], begin: int, end: int, count: int) -> dict[str, object]:
    """The tokens from `begin` to `end`, of which the chunk counts those up to `count`."""
    found = tokens[begin:end]
    meta = {
        "prompt_tokens": LENGTH,
        "completion_tokens": count,
        "cached_tokens": 2,
        "output_token_logprobs": [[-0.5, token, None] for token in found],
        "output_top_logprobs": [[[-0.5, token, None]] for token in found],
    }
    return {"output_ids": found, "meta_info": meta}


@given(SIZES, st.booleans(), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_chunks_of_sglang_give_all_tokens_once(sizes: list[int], repeats: bool, ahead: list[int]) -> None:
    """`ahead` is how many tokens a chunk that repeats has beyond its count."""
    tokens = list(range(100, 100 + sum(sizes)))
    reader = SglangEventReader("http://127.0.0.1:1", LENGTH, ASK)
    read: list[int] = []
    scored: list[int] = []
    end = 0
    for size, more in zip(sizes, ahead, strict=False):
        begin, end = end, end + size
        shown = min(end + more, len(tokens)) if repeats else end
        piece = reader.read(chunk(tokens, 0 if repeats else begin, shown, end))
        read += piece.tokens
        scored += [each.token for each in piece.logprobs or ()]
        assert piece.cached_tokens == (2 if len(read) == len(piece.tokens) else 0)
    assert read == scored == tokens
