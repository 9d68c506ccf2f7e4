"""What holds for every remote engine, over any wire: a subclass provides `kind` and `double_type`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

import inference
from inference.engine import CheckpointError, Engine, EngineBusy, EngineFailed, Finish, Sampling, TokenLogprob
from inference.grammar import Notation
from inference.options import EngineOptions
from inference.remote.engine import RemoteEngine
from tests.contracts.engine_contract import GREEDY, PROMPT, EngineContract, Generated, becomes_idle, generated
from tests.doubles.engines.http_double import HttpDouble, Model, Refusal, some_model
from tests.doubles.engines.sglang_double import SglangDouble
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written
from tests.doubles.waiting import until, until_found


async def connected(double: HttpDouble, kind: str, **options: Any) -> RemoteEngine:
    """Loading blocks its thread, and the double lives in this one."""
    name = double.url if kind == "http" else f"{kind}:{double.url}"
    engine = await asyncio.to_thread(inference.load, name, options=EngineOptions(**options))
    assert isinstance(engine, RemoteEngine)
    return engine


def model_tokens(count: int) -> tuple[int, ...]:
    """What the doubles' model says to `PROMPT`."""
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(some_model(tokens))
    return tuple(tokens[len(PROMPT) :])


def scores(found: Generated) -> list[TokenLogprob]:
    return [entry for step in found.steps for entry in step.logprobs or ()]


def ends_at(place: int, end: int) -> Model:
    """A model that says `end` to `PROMPT` once, after `place` tokens."""
    return lambda tokens: end if len(tokens) == len(PROMPT) + place else len(tokens)


async def check_abandoned_ends(engine: Engine, running: Callable[[], float]) -> None:
    """`running`: the generations that the server states."""
    stream = engine.generate([11, 12, 13], replace(GREEDY, max_tokens=900, min_tokens=900))
    await anext(stream)
    await until_found(lambda: asyncio.to_thread(running), lambda count: count == 1)
    await stream.aclose()
    await until_found(lambda: asyncio.to_thread(running), lambda count: count == 0)


@pytest.mark.anyio
class RemoteContract(EngineContract):
    kind: ClassVar[str]
    double_type: ClassVar[type[HttpDouble]]
    traits: ClassVar[Mapping[str, Any]] = {}  # attributes of the double

    @pytest.fixture
    async def double(self) -> AsyncIterator[Any]:
        async with self.double_type() as double:
            vars(double).update(self.traits)
            yield double

    @pytest.fixture
    async def engine(self, double: HttpDouble) -> AsyncIterator[Engine]:
        double.pace = 0.001
        engine = await self.connected(double)
        yield engine
        await engine.close()

    async def connected(self, double: HttpDouble, **options: Any) -> RemoteEngine:
        """An engine whose double has forgotten what it was asked meanwhile."""
        engine = await connected(double, self.kind, **options)
        double.requests.clear()
        return engine

    async def test_tokens_are_the_models(self, double: HttpDouble) -> None:
        assert (await generated(await self.connected(double))).tokens == model_tokens(40)

    async def test_scores_are_those_of_the_tokens(self, double: HttpDouble) -> None:
        found = await generated(await self.connected(double), replace(GREEDY, logprobs=2))
        assert [entry.token for entry in scores(found)] == list(found.tokens) == list(model_tokens(40))
        for entry in scores(found):
            assert (entry.logprob, entry.top) == (-0.5, ((entry.token, -0.5), (entry.token + 1, -1.5)))

    async def test_an_address_alone_is_enough(self, double: HttpDouble) -> None:
        engine = await connected(double, "http")
        assert engine.info.description == (await self.connected(double)).info.description

    async def test_an_answer_that_breaks_off_is_a_failure_after_true_tokens(self, double: HttpDouble) -> None:
        engine = await self.connected(double)
        short = replace(GREEDY, max_tokens=3)
        double.model = lambda tokens: 700 + len(tokens)
        whole = (await generated(engine, short)).tokens
        length = double.sent
        for cut in range(length):
            double.cut_after = cut
            tokens: list[int] = []
            finish = None
            try:
                async for step in engine.generate(PROMPT, short):
                    tokens += step.tokens
                    finish = step.finish
            except EngineFailed:
                assert finish is None
            else:
                assert tuple(tokens) == whole, f"cut after {cut} of {length} bytes"
            assert tuple(tokens) == whole[: len(tokens)]
        await becomes_idle(engine)

    async def test_closing_a_stream_cancels_it_on_the_server(self, double: HttpDouble) -> None:
        engine = await self.connected(double)
        double.pace = 0.01
        stream = engine.generate(PROMPT, replace(GREEDY, max_tokens=None))
        await anext(stream)
        assert double.streaming == 1
        await stream.aclose()
        await until(lambda: not double.streaming)

    @pytest.mark.parametrize("status", [429, 503])
    async def test_a_full_server_is_busy(self, double: HttpDouble, status: int) -> None:
        engine = await self.connected(double)
        error = {"error": {"code": status, "message": "Loading model", "type": "unavailable_error"}}
        double.refusal = Refusal(status, error, (("retry-after", "7"),))
        with pytest.raises(EngineBusy, match="Loading model") as caught:
            await generated(engine)
        assert (caught.value.retry_after, caught.value.waiting) == (7.0, None)

    async def test_a_refusal_has_the_servers_words(self, double: HttpDouble) -> None:
        engine = await self.connected(double)
        double.refusal = Refusal(500, b"<html>no</html>")
        with pytest.raises(EngineFailed, match=r"\(500\): <html>no</html>"):
            await generated(engine)

    async def test_silence_ends_a_generation(self, double: HttpDouble) -> None:
        engine = await self.connected(double, engine_idle_timeout=0.5)
        double.silent = True
        with pytest.raises(EngineFailed, match=r"not a byte for 0\.5 s"):
            await generated(engine)
        await becomes_idle(engine)

    async def test_the_key_is_sent(self, double: HttpDouble) -> None:
        await self.connected(double, engine_key="secret")
        assert {headers["authorization"] for headers in double.headers} == {"bearer secret"}

    async def test_a_server_that_tokenises_otherwise_is_refused(
        self, double: HttpDouble, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("inference.remote.loading._PROBE_IDS", [1, 2, 3])
        with pytest.raises(CheckpointError, match="tokenises otherwise"):
            await self.connected(double)

    async def test_a_server_without_ids_is_refused(self, double: HttpDouble) -> None:
        double.has_ids = False
        with pytest.raises(CheckpointError, match="returned no token ids"):
            await self.connected(double)

    async def test_no_server_is_a_sentence(self, double: HttpDouble) -> None:
        url = double.url
        await double.__aexit__()
        with pytest.raises(EngineFailed, match="cannot be reached"):
            await asyncio.to_thread(inference.load, f"{self.kind}:{url}")

    async def test_a_check_finds_a_server_that_is_gone_and_costs_no_generation(
        self, double: HttpDouble
    ) -> None:
        engine = await self.connected(double)
        await engine.check()
        assert [path for path, _ in double.requests] == ["/health"]
        await double.__aexit__()
        with pytest.raises(EngineFailed, match="cannot be reached"):
            await engine.check()

    @pytest.mark.parametrize(("status", "sound"), [(503, False), (500, False), (404, True), (401, True)])
    async def test_a_check_believes_a_server_that_says_it_is_broken(
        self, double: HttpDouble, status: int, sound: bool
    ) -> None:
        """A proxy without the path of health says nothing about the server that it passes requests to."""
        engine = await self.connected(double)
        double.ill = Refusal(status, {"error": {"message": "the engine is dead"}})
        if sound:
            await engine.check()
            return
        with pytest.raises(EngineFailed, match="the engine is dead"):
            await engine.check()

    async def test_a_check_does_not_wait_for_ever(
        self, double: HttpDouble, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = await self.connected(double)
        double.silent = True
        monkeypatch.setattr("inference.remote.engine.CHECK_SECONDS", 0.05)
        with pytest.raises(EngineFailed, match="does not answer /health"):
            await engine.check()


Double = SglangDouble | VllmDouble
FIELDS: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "max_tokens": 3}
FIELDS |= {"presence_penalty": 0.1, "frequency_penalty": 0.2, "cache_salt": "salt", "logit_bias": {5: 1.5}}
SENT = {**FIELDS, "logit_bias": {"5": 1.5}, "stop_token_ids": [199999, 200002, 200012]}
DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


class EndingContract(RemoteContract):
    """Servers that end at the model's own end, and take xgrammar's notation."""

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
        grammar = Written(END, is_usual=True, unfit={8})
        found = await generated(engine, replace(GREEDY, max_tokens=10, continued=(3, 4), grammar=grammar))
        assert found.tokens == tuple(range(5, 15)), "each token once"
        assert self.grammars(double) == [None, f"xgrammar after {[3, 4, 5, 6, 7]}"]
        assert (engine.measures()["corrected"], engine.measures()["continued"]) == (1, 0)

    async def test_an_end_that_does_not_fit_is_sampled_again(self, double: Double) -> None:
        double.model = ends_at(2, END)
        engine = await self.connected(double)
        grammar = Written(END, is_usual=True, unfit={END})
        found = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({END}), grammar=grammar))
        assert (found.tokens, found.finish) == ((5, 6, END), Finish.STOP)
        assert self.grammars(double) == [None, "xgrammar after [5, 6]"]

    async def test_a_usual_grammar_that_is_kept_is_never_sent(self, double: Double) -> None:
        engine = await self.connected(double)
        found = await generated(engine, replace(GREEDY, grammar=Written(END, is_usual=True)))
        assert (found.tokens, self.grammars(double)) == (model_tokens(40), [None])
        assert engine.measures()["corrected"] == 0
