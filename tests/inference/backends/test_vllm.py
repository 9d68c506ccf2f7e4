"""The wire of vLLM, against a double that has its traps."""

from dataclasses import replace

import pytest

from inference.engine import EngineFailed, Finish
from tests.contracts.ending_contract import EndingContract
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import connected, scores
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written


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

    async def test_another_server_is_not_taken_for_vllm(self, double: VllmDouble) -> None:
        with pytest.raises(EngineFailed):
            await connected(double, "llama")

    async def test_a_request_that_is_wrong_for_another_reason_stays_refused(self, double: VllmDouble) -> None:
        engine = await self.connected(double)
        with pytest.raises(EngineFailed, match="bad temperature"):
            await generated(engine, replace(GREEDY, temperature=3.0, grammar=Written(END)))
