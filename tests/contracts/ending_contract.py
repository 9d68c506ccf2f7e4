"""What holds over the wires of servers that end at the model's own end, and take xgrammar's notation.

A subclass provides `kind` and `double`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inference.engine import Finish
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import RemoteContract, ends_at, model_tokens
from tests.doubles.engines.sglang_double import SglangDouble
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written


class EndingContract(RemoteContract):
    async def test_the_models_end_is_sampled_past_where_it_is_no_stop_id(
        self, double: SglangDouble | VllmDouble
    ) -> None:
        double.model = ends_at(4, END)
        engine = await self.connected(double)
        past = await generated(engine, replace(GREEDY, max_tokens=9))
        assert past.tokens == (5, 6, 7, 8, END, 10, 11, 12, 13)
        least = replace(GREEDY, max_tokens=9, min_tokens=7, stop_token_ids=frozenset({END}))
        assert len((await generated(engine, least)).tokens) == 9
        ignored = replace(GREEDY, max_tokens=6, ignored_stop_ids=frozenset({END}))
        assert END not in (await generated(engine, ignored)).tokens
        stopped = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({END})))
        assert (stopped.tokens[-1], stopped.finish) == (END, Finish.STOP), "its end must not be trimmed"

    async def test_a_server_that_refuses_the_grammar_samples_without(
        self, double: SglangDouble | VllmDouble, caplog: pytest.LogCaptureFixture
    ) -> None:
        engine = await self.connected(double)
        double.takes_grammars = False
        found = await generated(engine, replace(GREEDY, grammar=Written(END)))
        assert found.tokens == model_tokens(40)
        assert "is checked after it has ended" in caplog.text

    async def test_events_that_wait_are_one_step(self, double: SglangDouble | VllmDouble) -> None:
        engine = await self.connected(double)
        steps = [step async for step in engine.generate(PROMPT, replace(GREEDY, logprobs=1))]
        tokens = [token for step in steps for token in step.tokens]
        assert tuple(tokens) == model_tokens(40)
        assert len(steps) < 40, "the double sends them all at once"
        scored = [score.token for step in steps for score in step.logprobs or ()]
        assert scored == tokens

    @pytest.mark.parametrize("at_once", [1, 2, 5])
    async def test_a_usual_grammar_is_sent_from_a_token_on_that_does_not_fit(
        self, double: SglangDouble | VllmDouble, at_once: int
    ) -> None:
        double.at_once, double.model = at_once, len
        engine = await self.connected(double)
        double.requests.clear()
        grammar = Written(END, is_usual=True, unfit={8})
        found = await generated(engine, replace(GREEDY, max_tokens=10, continued=(3, 4), grammar=grammar))
        assert found.tokens == tuple(range(5, 15)), "each token once"
        assert _grammars(double) == [None, f"xgrammar after {[3, 4, 5, 6, 7]}"]
        assert engine.measures()["corrected"] == 1
        assert engine.measures()["continued"] == 0

    async def test_an_end_that_does_not_fit_is_sampled_again(self, double: SglangDouble | VllmDouble) -> None:
        double.model = ends_at(2, END)
        engine = await self.connected(double)
        double.requests.clear()
        grammar = Written(END, is_usual=True, unfit={END})
        found = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({END}), grammar=grammar))
        assert (found.tokens, found.finish) == ((5, 6, END), Finish.STOP)
        assert _grammars(double) == [None, "xgrammar after [5, 6]"]

    async def test_a_usual_grammar_that_is_kept_is_never_sent(
        self, double: SglangDouble | VllmDouble
    ) -> None:
        engine = await self.connected(double)
        double.requests.clear()
        found = await generated(engine, replace(GREEDY, grammar=Written(END, is_usual=True)))
        assert found.tokens == model_tokens(40)
        assert _grammars(double) == [None]
        assert engine.measures()["corrected"] == 0


def _grammars(double: SglangDouble | VllmDouble) -> list[str | None]:
    """Of each request that samples."""
    bodies = [body for path, body in double.requests if path in ("/generate", "/v1/completions")]
    return [_grammar(body) for body in bodies]


def _grammar(body: Any) -> str | None:
    found = body.get("structured_outputs", {}).get("grammar") or body.get("sampling_params", {}).get("ebnf")
    return None if found is None else str(found)
