"""What holds over the wires of servers that end at the model's own end, and take xgrammar's notation.

A subclass provides `kind` and `double`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference.engine import Finish
from tests.contracts.engine_contract import GREEDY, generated
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
