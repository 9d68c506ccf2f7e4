"""A real llama-server on the embedded model: the contract, the traps, the local engine's texts."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import inference
from gpt_oss_server.harmony.encoding import Encoding
from inference import tiny
from inference.engine import Engine, Finish, Sampling
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, EngineContract, generated
from tests.contracts.greedy_contract import GreedyContract, builtin
from tests.contracts.remote_contract import check_abandoned_ends, scores
from tests.contracts.spelled_contract import SpelledContract
from tests.doubles.engines.live import exported, found_llama_server, llama_server

__all__ = ["builtin"]  # a fixture
PROGRAM = found_llama_server()
pytestmark = [
    pytest.mark.engines,
    pytest.mark.anyio,
    pytest.mark.skipif(PROGRAM is None, reason="no llama-server: set LLAMA_SERVER to its path"),
]
ORB = [172, 253, 100, 123]  # "🧿" as a model may spell it; the first three are no whole character


@pytest.fixture(scope="module")
def weights() -> Path:
    return tiny.checkpoint()


@pytest.fixture(scope="module")
def url(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert PROGRAM is not None
    model = exported(weights, tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    with llama_server(PROGRAM, model, "--slots") as (url, _):
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = await asyncio.to_thread(inference.load, f"llama:{url}")
    yield engine
    await engine.close()


class TestRealLlama(EngineContract, SpelledContract, GreedyContract):
    widest = 0.5  # it rounds activations to 8 bits where weights have 4

    @pytest.fixture
    def engine(self, engine: Engine) -> Engine:
        return engine


def prompt_of(encoding: Encoding, question: str) -> list[int]:
    return encoding.encode_special(
        f"<|start|>user<|message|>{question}<|end|><|start|>assistant<|channel|>final<|message|>"
    )


async def test_half_characters_arrive_as_they_were_sampled(engine: Engine) -> None:
    """A bias makes the model write ids that the stream never shows."""
    for ids in (ORB[:1], ORB[1:2], ORB[:3]):
        biased = replace(GREEDY, max_tokens=24, logit_bias=dict.fromkeys(ids, 200.0))
        found = await generated(engine, biased)
        assert set(found.tokens) <= set(ids)
        assert (len(found.tokens), found.finish) == (24, Finish.LENGTH)


async def test_sampled_half_characters_repeat_with_the_seed(engine: Engine) -> None:
    biased = {"logit_bias": dict.fromkeys(ORB, 200.0)}
    sampling = replace(GREEDY, temperature=20.0, seed=5, max_tokens=24, **biased)
    first = await generated(engine, sampling)
    assert len(set(first.tokens) & set(ORB[:3])) > 1, "nothing fell into the trap"
    assert len(first.tokens) == 24
    assert (await generated(engine, sampling)).tokens == first.tokens


async def test_half_characters_have_logprobs(engine: Engine) -> None:
    biased = replace(GREEDY, max_tokens=6, logit_bias=dict.fromkeys(ORB[:2], 200.0), logprobs=2)
    found = await generated(engine, biased)
    assert [entry.token for entry in scores(found)] == list(found.tokens)
    assert all(entry.logprob <= 0 and len(entry.top) == 2 for entry in scores(found))


async def test_logprobs_are_the_local_engines(engine: Engine, weights: Path, encoding: Encoding) -> None:
    local = load_local(weights, EngineOptions(device="cpu", context=1024), name="tiny")
    prompt = prompt_of(encoding, "What is the capital of France?")
    sampling = Sampling(temperature=0.0, max_tokens=8, logprobs=3)
    theirs, mine = [scores(await generated(each, sampling, prompt)) for each in (engine, local)]
    assert [entry.token for entry in theirs] == [entry.token for entry in mine]
    for one, other in zip(theirs, mine, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=0.05)
    await local.close()


async def test_an_abandoned_generation_frees_its_slot_on_the_server(engine: Engine, url: str) -> None:
    def busy() -> int:
        with urllib.request.urlopen(f"{url}/slots") as answer:
            return sum(slot["is_processing"] for slot in json.load(answer))

    await check_abandoned_ends(engine, busy)


async def test_generations_survive_the_death_of_their_server(
    weights: Path, encoding: Encoding, tmp_path: Path
) -> None:
    """One of two servers is killed under 50 streams: all texts are those of undisturbed ones."""
    assert PROGRAM is not None
    model = exported(weights, tmp_path / "tiny.gguf")
    prompts = [prompt_of(encoding, f"Count from {number}.") for number in range(50)]
    sampling = Sampling(temperature=0.0, max_tokens=48)
    with llama_server(PROGRAM, model) as (first, _), llama_server(PROGRAM, model) as (second, process):
        engine = await asyncio.to_thread(inference.load, f"llama:{first},{second}")
        whole = await asyncio.gather(*(generated(engine, sampling, prompt) for prompt in prompts))
        streams = [asyncio.create_task(generated(engine, sampling, prompt)) for prompt in prompts]
        await asyncio.sleep(2.0)
        process.kill()
        disturbed = await asyncio.gather(*streams)
        assert [found.tokens for found in disturbed] == [found.tokens for found in whole]
        assert engine.measures()["continued"] > 0, "nothing was disturbed"
        await engine.close()
