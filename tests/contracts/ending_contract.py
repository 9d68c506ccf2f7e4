"""What holds over the wires of servers that end at the model's own end, and take xgrammar's notation.

A subclass provides `kind`, `double_type` and `names`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from inference.engine import EngineFailed, Finish, Sampling
from inference.grammar import Notation
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import RemoteContract, ends_at, model_tokens
from tests.doubles.engines.sglang_double import SglangDouble
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written

Double = SglangDouble | VllmDouble
FIELDS: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "max_tokens": 3}
FIELDS |= {"presence_penalty": 0.1, "frequency_penalty": 0.2, "cache_salt": "salt", "logit_bias": {5: 1.5}}
SENT = {**FIELDS, "logit_bias": {"5": 1.5}, "stop_token_ids": [199999, 200002, 200012]}
DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


class EndingContract(RemoteContract):
    names: ClassVar[Mapping[str, str]] = {}  # of fields that the server names in another way
    no_top_k: ClassVar[int] = 0

    def sampled(self, double: Double) -> list[dict[str, Any]]:
        """The fields of each request that samples, with this project's names."""
        bodies = [body for path, body in double.requests if path in ("/generate", "/v1/completions")]
        ours = {theirs: name for name, theirs in self.names.items()}
        flat = [{**body, **body.get("sampling_params", {})} for body in bodies]
        return [{ours.get(name, name): value for name, value in body.items()} for body in flat]

    def grammars(self, double: Double) -> list[str | None]:
        bodies = self.sampled(double)
        return [body.get("structured_outputs", {}).get("grammar") or body.get("ebnf") for body in bodies]

    async def test_every_sampling_field_is_sent(self, double: Double) -> None:
        engine = await self.connected(double)
        double.requests.clear()
        await generated(engine, Sampling(**FIELDS, seed=3, priority=4))
        await generated(engine, Sampling(max_tokens=3, cache_salt="", priority=1))
        full, plain = self.sampled(double)
        assert {name: full.get(name) for name in SENT} == SENT
        assert not {"cache_salt", "priority", "seed", "logit_bias", "ebnf", "structured_outputs"} & set(plain)
        assert {name: plain[name] for name in DEFAULTS} == DEFAULTS | {"top_k": self.no_top_k}

    async def test_each_request_of_a_generation_has_a_seed_of_its_own(self, double: Double) -> None:
        """With one seed, a request that continues would repeat the random numbers of the one before."""
        double.model = ends_at(4, END)
        engine = await self.connected(double)
        double.requests.clear()
        for _ in range(2):
            await generated(engine, replace(GREEDY, seed=7))
        first, second, *again = [body["seed"] for body in self.sampled(double)]
        assert first != second
        assert again == [first, second]

    async def test_an_end_that_is_none_is_continued_a_few_times(self, double: Double) -> None:
        engine = await self.connected(double)
        double.aborts_after = 6
        tokens: list[int] = []
        with pytest.raises(EngineFailed, match=r"[Aa]bort"):  # noqa: PT012
            async for step in engine.generate(PROMPT, GREEDY):
                tokens += step.tokens
        assert 24 <= len(tokens) < 40
        assert tuple(tokens) == model_tokens(len(tokens))

    async def test_the_models_end_is_sampled_past_where_it_is_no_stop_id(self, double: Double) -> None:
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
        self, double: Double, caplog: pytest.LogCaptureFixture
    ) -> None:
        engine = await self.connected(double)
        double.takes_grammars = False
        found = await generated(engine, replace(GREEDY, grammar=Written(END)))
        assert found.tokens == model_tokens(40)
        assert "is checked after it has ended" in caplog.text

    async def test_events_that_wait_are_one_step(self, double: Double) -> None:
        found = await generated(await self.connected(double))
        assert len(found.steps) < 40, "the double sends them all at once"

    async def test_each_request_has_the_rest_of_the_grammar(self, double: Double) -> None:
        double.model = ends_at(4, END)
        engine = await self.connected(double)
        assert engine.info.notation is Notation.XGRAMMAR
        double.requests.clear()
        await generated(engine, replace(GREEDY, max_tokens=8, continued=(3, 4), grammar=Written(END)))
        rest = f"xgrammar after {[3, 4, 5, 6, 7, 8, END]}"
        assert self.grammars(double) == ["xgrammar after [3, 4]", rest]
        stops = self.sampled(double)[0]["stop_token_ids"]
        assert {77, END} <= set(stops), "the server ends where the grammar does"

    @pytest.mark.parametrize("at_once", [1, 2, 5])
    async def test_a_usual_grammar_is_sent_from_a_token_on_that_does_not_fit(
        self, double: Double, at_once: int
    ) -> None:
        double.at_once, double.model = at_once, len
        engine = await self.connected(double)
        double.requests.clear()
        grammar = Written(END, is_usual=True, unfit={8})
        found = await generated(engine, replace(GREEDY, max_tokens=10, continued=(3, 4), grammar=grammar))
        assert found.tokens == tuple(range(5, 15)), "each token once"
        assert self.grammars(double) == [None, f"xgrammar after {[3, 4, 5, 6, 7]}"]
        assert (engine.measures()["corrected"], engine.measures()["continued"]) == (1, 0)

    async def test_an_end_that_does_not_fit_is_sampled_again(self, double: Double) -> None:
        double.model = ends_at(2, END)
        engine = await self.connected(double)
        double.requests.clear()
        grammar = Written(END, is_usual=True, unfit={END})
        found = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({END}), grammar=grammar))
        assert (found.tokens, found.finish) == ((5, 6, END), Finish.STOP)
        assert self.grammars(double) == [None, "xgrammar after [5, 6]"]

    async def test_a_usual_grammar_that_is_kept_is_never_sent(self, double: Double) -> None:
        engine = await self.connected(double)
        double.requests.clear()
        found = await generated(engine, replace(GREEDY, grammar=Written(END, is_usual=True)))
        assert (found.tokens, self.grammars(double)) == (model_tokens(40), [None])
        assert engine.measures()["corrected"] == 0
