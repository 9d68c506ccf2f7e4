"""Real servers: the contract, the traps of their wires, cancellation, the local engine's texts.

llama-server and vLLM run the embedded model's weights; an SGLang runs already, with any model.
"""

import asyncio
import json
import os
import re
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.harmony.encoding import Encoding
from inference import tiny
from inference.engine import Engine, Finish, Sampling
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, EngineContract, generated
from tests.contracts.remote_contract import check_abandoned_ends, scores
from tests.contracts.spelled_contract import SpelledContract
from tests.doubles.engines.live import (
    exported,
    found_llama_server,
    found_vllm,
    llama_server,
    vllm_server,
    write_folder,
)

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
LLAMA, VLLM = found_llama_server(), found_vllm()
SGLANG, SGLANG_KEY = os.environ.get("SGLANG_URL", ""), os.environ.get("SGLANG_KEY")
needs_llama = pytest.mark.skipif(LLAMA is None, reason="no llama-server: set LLAMA_SERVER to its path")
ORB = [172, 253, 100, 123]  # "🧿" as a model may spell it; the first three are no whole character


async def loaded(name: str, key: str | None = None) -> Any:
    return await asyncio.to_thread(inference.load, name, options=EngineOptions(engine_key=key))


def fetched(url: str, key: str | None = None) -> str:
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    ) as answer:
        return str(answer.read().decode())


TOPICS = (
    "France", "Japan", "gravity", "a poem about rain", "2 + 2", "Python lists", "the moon", "tea",
    "the sea", "music", "birds", "bread", "chess", "clouds", "DNA", "Egypt",
    "fire", "gold", "honey", "ice", "jazz", "kites", "light", "maps",
    "night", "olives", "paper", "queens", "rivers", "salt",
)  # fmt: skip
FORMS = [
    "Tell me about {}.", "What is {}?", "Explain {} in one sentence.", "Write a question on {}.", "{}!",
    "Translate '{}' into German.", "Why {}?",
]  # fmt: skip
QUESTIONS = [form.format(topic) for topic in TOPICS for form in FORMS][:200]
TOKENS, TOGETHER = 24, 4
LEAST = 0.95  # of the texts are the same


@dataclass(frozen=True)
class Parting:
    question: str
    place: int
    gap: float  # of the log-probabilities of the two tokens, on the built-in engine
    texts: tuple[str, str]  # the built-in engine's and the other one's


@pytest.fixture
async def builtin() -> AsyncIterator[Engine]:
    engine = await asyncio.to_thread(inference.load, "tiny", device="cpu", progress=False)
    yield engine
    await engine.close()


def prompt_of(encoding: Encoding, question: str) -> list[int]:
    return encoding.encode_special(
        f"<|start|>user<|message|>{question}<|end|><|start|>assistant<|channel|>final<|message|>"
    )


async def parting(encoding: Encoding, question: str, engines: Sequence[Engine]) -> Parting | None:
    prompt = prompt_of(encoding, question)
    own, other = [
        (await generated(each, Sampling(temperature=0.0, max_tokens=TOKENS), prompt)).tokens
        for each in engines
    ]
    if own == other:
        return None
    place = next(n for n in range(TOKENS) if own[n : n + 1] != other[n : n + 1])
    texts = (encoding.decode(own[place:]), encoding.decode(other[place:]))
    begun = [*prompt, *own[:place]]
    at = await generated(engines[0], Sampling(temperature=0.0, max_tokens=1, logprobs=20), begun)
    scores = dict(at.steps[0].logprobs[0].top) if at.steps[0].logprobs else {}
    missing = -100.0  # among the likeliest 20
    gap = scores.get(own[place], missing) - scores.get(other[place], missing)
    return Parting(question, place, gap, texts)


class GreedyContract:
    """The greedy texts of an engine that runs the embedded model are the built-in engine's.

    Sums in another order, or of rounded activations, tip a choice where two tokens are almost equally
    likely. So the texts may part there, and only there: each difference is held against the built-in engine's
    own log-probabilities.
    """

    widest: float  # gap at which texts may part

    async def test_greedy_texts_part_only_where_two_tokens_are_almost_equally_likely(
        self, engine: Engine, builtin: Engine, encoding: Encoding, capsys: pytest.CaptureFixture[str]
    ) -> None:
        turns = asyncio.Semaphore(TOGETHER)

        async def compared(question: str) -> Parting | None:
            async with turns:
                return await parting(encoding, question, (builtin, engine))

        found = [each for each in await asyncio.gather(*map(compared, QUESTIONS)) if each]
        same = len(QUESTIONS) - len(found)
        with capsys.disabled():
            sys.stdout.write(f"\n{same} of {len(QUESTIONS)} greedy texts of {TOKENS} tokens are the same.\n")
            for each in sorted(found, key=lambda each: each.gap):
                sys.stdout.write(
                    f"  {each.question!r} parts at token {each.place}, {each.gap:.4f} nats apart:"
                    f" {each.texts[0]!r}, {each.texts[1]!r}\n"
                )
        assert all(each.gap <= self.widest for each in found)
        assert same >= LEAST * len(QUESTIONS)


class RealContract(EngineContract, SpelledContract):
    kind: str
    key: str | None = None

    @pytest.fixture
    async def engine(self, url: str) -> AsyncIterator[Engine]:
        engine = await loaded(f"{self.kind}:{url}", self.key)
        yield engine
        await engine.close()


@pytest.mark.skipif(VLLM is None, reason="no vLLM: set VLLM to the path of its program")
class TestVllm(RealContract, GreedyContract):
    kind, widest = "vllm", 0.05

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with vllm_server(VLLM, write_folder(tiny.checkpoint(), tmp_path_factory.mktemp("folder"))) as url:
            yield url

    async def test_an_abandoned_generation_ends_on_the_server(self, engine: Engine, url: str) -> None:
        def running() -> float:
            return float(re.findall(r"vllm:num_requests_running\{.*\} (\S+)", fetched(f"{url}/metrics"))[0])

        await check_abandoned_ends(engine, running)


@pytest.mark.skipif(not SGLANG, reason="no SGLang: set SGLANG_URL to the address of one that runs")
class TestSglang(RealContract):
    kind, key = "sglang", SGLANG_KEY
    any_bytes = True  # its model may be of random weights

    @pytest.fixture
    def url(self) -> str:
        return SGLANG

    async def test_an_abandoned_generation_ends_on_the_server(self, engine: Engine) -> None:
        def running() -> int:
            loads = json.loads(fetched(f"{SGLANG}/v1/loads", SGLANG_KEY))["loads"]
            return sum(int(load["num_running_reqs"]) for load in loads)

        await check_abandoned_ends(engine, running)


@needs_llama
class TestLlama(RealContract, GreedyContract):
    kind, widest = "llama", 0.5  # it rounds activations to 8 bits where weights have 4

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        model = exported(tiny.checkpoint(), tmp_path_factory.mktemp("gguf") / "tiny.gguf")
        with llama_server(LLAMA, model, "--slots") as (url, _):
            yield url

    async def test_half_characters_arrive_as_they_were_sampled(self, engine: Engine) -> None:
        """A bias makes the model write ids that the stream never shows."""
        for ids in (ORB[:1], ORB[1:2], ORB[:3]):
            biased = replace(GREEDY, max_tokens=24, logit_bias=dict.fromkeys(ids, 200.0))
            found = await generated(engine, biased)
            assert set(found.tokens) <= set(ids)
            assert (len(found.tokens), found.finish) == (24, Finish.LENGTH)

    async def test_sampled_half_characters_repeat_with_the_seed(self, engine: Engine) -> None:
        biased = {"logit_bias": dict.fromkeys(ORB, 200.0)}
        sampling = replace(GREEDY, temperature=20.0, seed=5, max_tokens=24, **biased)
        first = await generated(engine, sampling)
        assert len(set(first.tokens) & set(ORB[:3])) > 1, "nothing fell into the trap"
        assert len(first.tokens) == 24
        assert (await generated(engine, sampling)).tokens == first.tokens

    async def test_half_characters_have_logprobs(self, engine: Engine) -> None:
        biased = replace(GREEDY, max_tokens=6, logit_bias=dict.fromkeys(ORB[:2], 200.0), logprobs=2)
        found = await generated(engine, biased)
        assert [entry.token for entry in scores(found)] == list(found.tokens)
        assert all(entry.logprob <= 0 and len(entry.top) == 2 for entry in scores(found))

    async def test_logprobs_are_the_local_engines(self, engine: Engine, encoding: Encoding) -> None:
        local = load_local(tiny.checkpoint(), EngineOptions(device="cpu", context=1024), name="tiny")
        prompt = prompt_of(encoding, "What is the capital of France?")
        sampling = Sampling(temperature=0.0, max_tokens=8, logprobs=3)
        theirs, mine = [scores(await generated(each, sampling, prompt)) for each in (engine, local)]
        assert [entry.token for entry in theirs] == [entry.token for entry in mine]
        for one, other in zip(theirs, mine, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=0.05)
        await local.close()

    async def test_an_abandoned_generation_frees_its_slot(self, engine: Engine, url: str) -> None:
        def busy() -> int:
            return sum(slot["is_processing"] for slot in json.loads(fetched(f"{url}/slots")))

        await check_abandoned_ends(engine, busy)


@needs_llama
async def test_generations_survive_the_death_of_their_server(encoding: Encoding, tmp_path: Path) -> None:
    """One of two servers is killed under 50 streams: all texts are those of undisturbed ones."""
    model = exported(tiny.checkpoint(), tmp_path / "tiny.gguf")
    prompts = [prompt_of(encoding, f"Count from {number}.") for number in range(50)]
    sampling = Sampling(temperature=0.0, max_tokens=48)
    with llama_server(LLAMA, model) as (first, _), llama_server(LLAMA, model) as (second, process):
        engine = await loaded(f"llama:{first},{second}")
        whole = await asyncio.gather(*(generated(engine, sampling, prompt) for prompt in prompts))
        streams = [asyncio.create_task(generated(engine, sampling, prompt)) for prompt in prompts]
        await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
        process.kill()
        disturbed = await asyncio.gather(*streams)
        assert [found.tokens for found in disturbed] == [found.tokens for found in whole]
        assert engine.measures()["continued"] > 0, "nothing was disturbed"
        await engine.close()
