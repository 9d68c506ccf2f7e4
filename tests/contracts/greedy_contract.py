"""Greedy texts of a remote engine that runs the embedded model: they are the built-in engine's.

Sums in another order, or of rounded activations, tip a choice where two tokens are almost equally likely. So
the texts may part there, and only there: each difference is held against the built-in engine's own
log-probabilities. A subclass provides `engine`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

import inference
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import Engine, Sampling
from tests.contracts.engine_contract import generated

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


async def parting(
    encoding: Encoding, question: str, prompt: list[int], engines: Sequence[Engine]
) -> Parting | None:
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


@pytest.mark.anyio
class GreedyContract:
    widest: float  # gap at which texts may part

    async def test_greedy_texts_part_only_where_two_tokens_are_almost_equally_likely(
        self, engine: Engine, builtin: Engine, encoding: Encoding, capsys: pytest.CaptureFixture[str]
    ) -> None:
        turns = asyncio.Semaphore(TOGETHER)

        async def compared(question: str) -> Parting | None:
            text = f"<|start|>user<|message|>{question}<|end|><|start|>assistant<|channel|>final<|message|>"
            async with turns:
                return await parting(encoding, question, encoding.encode_special(text), (builtin, engine))

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
