"""What holds for every remote engine, over any wire: a subclass provides `kind` and `double_type`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

import inference
from inference.engine import CheckpointError, Engine, EngineBusy, EngineFailed, TokenLogprob
from inference.options import EngineOptions
from inference.remote.engine import RemoteEngine
from tests.contracts.engine_contract import GREEDY, PROMPT, EngineContract, Generated, becomes_idle, generated
from tests.doubles.engines.http_double import HttpDouble, Model, Refusal, some_model
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
        return await connected(double, self.kind, **options)

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
        before = len(double.requests)
        await engine.check()
        assert [path for path, _ in double.requests[before:]] == ["/health"]
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
