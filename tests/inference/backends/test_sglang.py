"""The wire of SGLang, against a double that has its traps."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from inference.engine import EngineBusy, EngineFailed, Finish
from tests.contracts.ending_contract import EndingContract
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import connected, ends_at, model_tokens, scores
from tests.doubles.engines.http_double import Refusal
from tests.doubles.engines.sglang_double import END, SglangDouble
from tests.doubles.engines.written import Written
from tests.doubles.waiting import until


class SglangContract(EndingContract):
    kind, double_type = "sglang", SglangDouble
    names = {"seed": "sampling_seed", "max_tokens": "max_new_tokens"}  # noqa: RUF012
    no_top_k = -1


class TestSglangWithFurtherTokensOnly(SglangContract):
    traits = {"incremental": True}  # noqa: RUF012


class TestSglangWithSeveralTokensInAChunk(SglangContract):
    """Chunks that repeat may be ahead of their own counts."""

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

    async def test_another_server_is_not_taken_for_it(self, double: SglangDouble) -> None:
        with pytest.raises(EngineFailed):
            await connected(double, "vllm")
