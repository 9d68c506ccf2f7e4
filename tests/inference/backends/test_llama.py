"""The wire of llama-server, against a double that has its traps."""

from dataclasses import replace
from itertools import pairwise

import pytest

import inference
from inference.engine import CheckpointError, Finish, ModelNotFound, Sampling
from tests.contracts.engine_contract import GREEDY, generated
from tests.contracts.remote_contract import RemoteContract, ends_at, model_tokens
from tests.doubles.engines.llama_double import LlamaDouble, leaves_a_character_unfinished

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


WRONG = dict.fromkeys(("", "ftp://here", "http://here:port", "http://a,"), "is no URL")
WRONG |= {"http://a:b@here": "--engine-key", "http://a,http://a": "one address twice"}


@pytest.mark.parametrize(("url", "words"), WRONG.items())
def test_a_wrong_address_is_a_sentence(url: str, words: str) -> None:
    with pytest.raises(ModelNotFound, match=words):
        inference.load(f"llama:{url}")
