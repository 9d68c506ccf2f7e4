"""A draft head on a card: recorded against unrecorded, texts as without it, and drafts that are right."""

import asyncio
import random
from contextlib import aclosing

import pytest
import torch

from inference.config import SHAPES
from inference.drafting import loading
from inference.drafting.head import DraftHead
from inference.engine import EngineInfo, Sampling
from inference.local import engine as engines
from inference.local.cuda.runner import CudaRunner
from inference.local.engine import LocalEngine
from inference.models.gpt_oss import GptOss
from inference.options import EngineOptions
from tests.doubles.inference.walking import (
    EACH,
    Answer,
    KnowingHead,
    Walk,
    answers,
    head_shape,
    random_draft_weights,
    walking_model,
)

pytestmark = pytest.mark.gpu

MOST = 2
Walking = tuple[GptOss, Walk]


@pytest.fixture(scope="module")
def walking(card: torch.device) -> Walking:
    return walking_model(SHAPES["tiny"], card)


def prompts(count: int, longest: int) -> list[list[int]]:
    draw = random.Random(count)
    return [[draw.randrange(2048) for _ in range(draw.randint(2, longest))] for _ in range(count)]


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_recorded_guesses_equal_unrecorded_ones(walking: Walking, batch: int) -> None:
    """With a random head, whose guesses depend on every key, value and feature."""
    model, walk = walking
    config = head_shape(model.config)
    head = DraftHead(config, random_draft_weights(config, model), model)

    def found(graphs: bool) -> list[list[Answer]]:
        blocks = [1 + batch * EACH] * len(model.config.windows)
        runner = CudaRunner(model, blocks, batch, drafts=MOST, head=head, graphs=graphs)
        runner.prepare(False)
        given = prompts(batch, 150)
        texts = [walk.text(prompt, 40) for prompt in given]
        return answers(runner, given, texts, 12, MOST)

    plain, recorded = found(graphs=False), found(graphs=True)
    sampled = [[each for each, _ in step] for step in plain]
    assert [[each for each, _ in step] for step in recorded] == sampled
    assert all(len(each) == 2 for step in sampled[1:] for each in step)
    # A padded batch adds in another order, and bf16 may then prefer another of two equal guesses.
    pairs = [
        own == other
        for steps in zip(plain, recorded, strict=True)
        for (_, own), (_, other) in zip(*steps, strict=True)
    ]
    assert sum(pairs) > 0.8 * len(pairs)


async def answered(engine: LocalEngine, prompt: list[int], count: int) -> list[int]:
    sampling = Sampling(temperature=0.0, max_tokens=count, stop_token_ids=frozenset())
    async with aclosing(engine.generate(prompt, sampling)) as steps:
        return [token async for step in steps for token in step.tokens]


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_texts_are_the_models_however_often_the_head_is_right(
    walking: Walking, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, walk = walking
    head = KnowingHead(model, walk)
    head.know(share)
    monkeypatch.setattr(loading, "load_draft_head", lambda name, model: head)
    info = EngineInfo(name="walking", context_length=2048, vocab_size=2048)
    options = EngineOptions(speculation="eagle:known", max_concurrent=6, kv_memory=64 << 20)
    given = prompts(10, 400)

    async def run() -> tuple[list[list[int]], dict[str, float]]:
        engine = engines.start_engine(model, info, options, progress=False)
        found = await asyncio.gather(*(answered(engine, prompt, 60) for prompt in given))
        measures = engine.measures()
        await engine.close()
        return found, measures

    found, measures = asyncio.run(run())
    assert found == [walk.text(prompt, 60) for prompt in given]
    accepted, drafted = measures["accepted_tokens"], measures["drafted_tokens"]
    assert drafted > 0
    if share in (0.0, 1.0):
        assert accepted == share * drafted
    else:
        assert 0 < accepted < drafted
