"""Servers of several ranks: the second serves while the first cannot, whatever kind each is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

import inference
from inference.engine import ModelNotFound
from inference.remote.engine import RemoteEngine
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import model_tokens
from tests.doubles.engines.http_double import HttpDouble
from tests.doubles.engines.llama_double import LlamaDouble
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written
from tests.doubles.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.remote.engine._PROBE_SECONDS", 0.02)


@pytest.fixture
async def doubles() -> AsyncIterator[list[HttpDouble]]:
    """Of models with different names: one may stand in for another."""
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(double) for double in (VllmDouble(), LlamaDouble())]
        both[1].name = "some/smaller"
        yield both


@pytest.fixture
async def engine(doubles: list[HttpDouble]) -> AsyncIterator[RemoteEngine]:
    engine = await loaded(doubles)
    yield engine
    await engine.close()


async def loaded(doubles: list[HttpDouble]) -> RemoteEngine:
    name = f"vllm:{doubles[0].url}|llama:{doubles[1].url}"
    engine = await asyncio.to_thread(inference.load, name)
    assert isinstance(engine, RemoteEngine)
    for double in doubles:
        double.requests.clear()
    return engine


def bodies(double: HttpDouble) -> list[dict[str, Any]]:
    """Of generations' requests, of which llama-server gets several where its stream hides a token."""
    return [body for _, body in double.requests if body is not None and "stream" in body]


async def test_the_first_serves_alone(engine: RemoteEngine, doubles: list[HttpDouble]) -> None:
    await asyncio.gather(*(generated(engine) for _ in range(10)))
    assert [len(bodies(double)) for double in doubles] == [10, 0]
    assert engine.info.name == "model"
    assert engine.info.description == f"vLLM at {doubles[0].url}; else llama-server at {doubles[1].url}"
    assert "presence_penalty" not in engine.info.honours, "llama-server does not obey it"


@pytest.mark.parametrize("cut", [0, 700])
async def test_a_generation_continues_on_the_second_and_the_next_returns(
    engine: RemoteEngine, doubles: list[HttpDouble], cut: int
) -> None:
    doubles[0].cut_after = cut
    assert (await generated(engine)).tokens == model_tokens(40)
    requests = bodies(doubles[1])
    assert (len(requests[0]["prompt"]) > len(PROMPT)) == (cut > 0)
    doubles[0].cut_after = None
    await until(lambda: engine.measures()["replicas_ready"] == 2)
    assert (await generated(engine)).tokens == model_tokens(40)
    assert bodies(doubles[1]) == requests


async def test_each_gets_the_grammar_in_its_own_notation(
    engine: RemoteEngine, doubles: list[HttpDouble]
) -> None:
    doubles[0].cut_after = 0
    await generated(engine, replace(GREEDY, continued=(3, 4), grammar=Written(END)))
    first, second = (bodies(double)[0] for double in doubles)
    assert first["structured_outputs"] == {"grammar": "xgrammar after [3, 4]"}
    assert second["grammar"] == "gbnf after [3, 4]"


def test_what_is_no_server_cannot_stand_in() -> None:
    with pytest.raises(ModelNotFound, match="must be one, such as llama:URL, and not 'tiny'"):
        inference.load("vllm:http://127.0.0.1:1|tiny")
