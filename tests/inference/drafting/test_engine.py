"""The engine with a draft head: tokens and scores as without, in fewer steps where the head is right."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.config import ModelConfig
from inference.drafting.head import DraftHead
from inference.drafting.loading import load_draft_head
from inference.engine import Engine, Sampling
from inference.local.cuda.guesser import CudaGuesser
from inference.local.cuda.inputs import Tables
from inference.local.engine import LocalEngine, load_local
from inference.local.memory_plan import layer_kinds
from inference.models.gpt_oss import load_model
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, EngineContract, Generated, becomes_idle, generated
from tests.contracts.remote_contract import scores
from tests.doubles.engines.written import Recorded
from tests.doubles.inference.heads import (
    llama_config,
    speculators_config,
    write_head,
    write_repeating_model,
    write_right_head,
)
from tests.doubles.inference.on_gpu import run_as_on_a_gpu
from tests.doubles.random_tests.seeds import pairs
from tests.inference.local.cuda.test_runner import close

RUNNERS = ["cpu", "gpu"]


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> Path:
    return write_repeating_model(tmp_path_factory.mktemp("repeating"), config)


@pytest.fixture(scope="module")
def mostly_repeating(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> Path:
    return write_repeating_model(tmp_path_factory.mktemp("mostly"), config, share=0.1)


@pytest.fixture(autouse=True, params=RUNNERS)
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which runner computes the steps."""
    if request.param == "gpu":
        run_as_on_a_gpu(monkeypatch, padded=True)
    return str(request.param)


def engine_of(checkpoint: Path, head: Path | None, **options: Any) -> LocalEngine:
    speculation = head is not None and f"eagle:{head}"
    chosen = EngineOptions(device="cpu", speculation=speculation, max_concurrent=8, **options)
    return load_local(checkpoint, chosen, name="small")


Answers = tuple[list[Generated], dict[str, float]]


async def answers(engine: LocalEngine, sampling: Sampling, prompts: Sequence[list[int]]) -> Answers:
    """To all prompts together, then to the first one again, from the cache; and the engine's counts."""
    found = await asyncio.gather(*(generated(engine, sampling, prompt) for prompt in prompts))
    found.append(await generated(engine, sampling, prompts[0]))
    measures = engine.measures()
    await engine.close()
    return found, measures


@pytest.mark.parametrize("on", [pytest.param("cpu", marks=pytest.mark.proof), "gpu"], indirect=True)
class TestTheContract(EngineContract):
    @pytest.fixture
    async def engine(self, tmp_path: Path, checkpoint: Path, config: ModelConfig) -> AsyncIterator[Engine]:
        engine = engine_of(checkpoint, write_head(tmp_path, speculators_config(config)))
        yield engine
        await engine.close()


async def test_a_right_head_saves_four_of_five_steps(repeating: Path, tmp_path: Path) -> None:
    engine = engine_of(repeating, write_right_head(tmp_path, repeating))
    found = await generated(engine, replace(GREEDY, max_tokens=101), [5, 6, 7])
    assert len(found.tokens) == 101
    # The prompt gives a token; each later step gives five.
    measures = engine.measures()
    assert [measures[name] for name in ("steps", "drafted_tokens", "accepted_tokens")] == [21, 80, 80]
    await engine.close()


@pytest.mark.parametrize("length", [1, 7, 99])
async def test_a_right_head_guesses_up_to_the_end_of_the_context(
    repeating: Path, tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_of(repeating, write_right_head(tmp_path, repeating), context=128)
    found = await generated(engine, replace(GREEDY, max_tokens=None), list(range(length)))
    measures = engine.measures()
    await engine.close()
    assert len(found.tokens) == 128 - length
    assert measures["accepted_tokens"] == measures["drafted_tokens"] > 0.6 * len(found.tokens)
    assert not caplog.records


SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.7, "seed": 4},
    "filters": {"temperature": 0.8, "seed": 5, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    "penalties": {"temperature": 0.5, "seed": 6, "frequency_penalty": 0.3, "repetition_penalty": 1.1},
    "scores": {"temperature": 0.6, "seed": 7, "logprobs": 3, "presence_penalty": 0.2},
    "scored prompt": {"temperature": 0.0, "logprobs": 1, "prompt_logprobs": 2},
    "biases": {"temperature": 0.6, "seed": 8, "logit_bias": {3: 2.0, 9: -5.0}},
}


@pytest.mark.parametrize(("on", "kind"), pairs(RUNNERS, SAMPLINGS), indirect=["on"])
async def test_tokens_scores_and_finish_are_those_without_a_head(
    mostly_repeating: Path, tmp_path: Path, kind: str
) -> None:
    sampling = Sampling(max_tokens=30, stop_token_ids=frozenset({17, 400}), **SAMPLINGS[kind])
    draw = random.Random(kind)
    beginning = [draw.randrange(500) for _ in range(40)]
    prompts = [beginning + [draw.randrange(500) for _ in range(draw.randint(1, 60))] for _ in range(4)]
    wanted, _ = await answers(engine_of(mostly_repeating, None), sampling, prompts)
    head = write_right_head(tmp_path, mostly_repeating)
    found, measures = await answers(engine_of(mostly_repeating, head), sampling, prompts)
    assert [(one.tokens, one.finish) for one in found] == [(one.tokens, one.finish) for one in wanted]
    assert measures["accepted_tokens"] > 0
    for mine, theirs in zip(found, wanted, strict=True):
        close(scores(mine), scores(theirs))
        close(*([s for step in one.steps for s in step.prompt_logprobs or ()] for one in (mine, theirs)))


async def test_a_grammar_sees_exactly_the_tokens_that_are_sampled(repeating: Path, tmp_path: Path) -> None:
    """It allows what the model would say at most places, so that drafts are right and wrong."""
    [(free, *_), _] = await answers(engine_of(repeating, None), GREEDY, [[5]])
    sets = [{token} if at % 7 else {(token + 1) % 500, 3} for at, token in enumerate(free.tokens)]
    found = []
    for head in (None, write_right_head(tmp_path, repeating)):
        grammar = Recorded([*sets, {9}], size=504)
        engine = engine_of(repeating, head)
        answer = await generated(engine, replace(GREEDY, max_tokens=50, grammar=grammar), [5])
        measures = engine.measures()
        await engine.close()
        assert tuple(grammar.accepted) == answer.tokens
        assert all(token in allowed for token, allowed in zip(answer.tokens, sets, strict=False))
        found.append(answer.tokens)
    assert found[0] == found[1]
    assert 0 < measures["accepted_tokens"] < measures["drafted_tokens"]


async def test_readers_that_leave_take_their_blocks_along(mostly_repeating: Path, tmp_path: Path) -> None:
    engine = engine_of(mostly_repeating, write_right_head(tmp_path, mostly_repeating))

    async def one(number: int) -> None:
        async with aclosing(engine.generate([number, 7, 7, 8], replace(GREEDY, max_tokens=60))) as stream:
            async for _ in stream:
                number -= 1
                if number <= 0:
                    return

    await asyncio.gather(*(one(number) for number in range(20)))
    await becomes_idle(engine)
    engine._scheduler.cache.check_integrity([])
    assert engine.measures()["kv_blocks_used"] == 0
    await engine.close()


async def test_a_head_that_fails_ends_no_generation(
    repeating: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sampling = replace(GREEDY, max_tokens=30, temperature=1.0, seed=3)
    (wanted, _), _ = await answers(engine_of(repeating, None), sampling, [[5, 6]])
    engine = engine_of(repeating, write_right_head(tmp_path, repeating))
    calls = []

    def fails(self: DraftHead, outputs: torch.Tensor) -> torch.Tensor:
        calls.append(len(outputs))
        if len(calls) > 5:
            raise RuntimeError("no memory is left")
        return real(self, outputs)

    real = DraftHead.guesses
    monkeypatch.setattr(DraftHead, "guesses", fails)
    with caplog.at_level(logging.ERROR):
        found = await generated(engine, sampling, [5, 6])
    await engine.close()
    assert found.tokens == wanted.tokens
    assert len(calls) == 6
    assert "The draft head failed; from here on no drafts are made." in caplog.text


@pytest.mark.parametrize("layout", [speculators_config, llama_config])
def test_the_plan_counts_the_heads_memory(
    checkpoint: Path, config: ModelConfig, tmp_path: Path, layout: object
) -> None:
    model = load_model(checkpoint, device=torch.device("cpu"))
    head = load_draft_head(str(write_head(tmp_path, layout(config))), model)  # type: ignore[operator]
    blocks, size = 7, 16
    tables = Tables(3, 9, len(config.windows), model.device)
    guessing = CudaGuesser(head, model, blocks, size, tables, 4, records=False)
    kept = sum(each.nbytes for each in (guessing._keys, guessing._values, guessing._kept))
    newest = 4 * (4 + 2)  # of three slots and the padding's, which are few and not planned
    held = kept - newest * head.config.hidden * model.dtype.itemsize
    plain, more = layer_kinds(model), layer_kinds(model, head, size)
    for before, after in zip(plain, more, strict=True):
        extra = (after.bytes_per_token - before.bytes_per_token) * size
        assert extra == 0 if before.window else held / blocks <= extra < held / blocks + size


async def test_the_engine_states_where_its_drafts_come_from(
    checkpoint: Path, config: ModelConfig, tmp_path: Path
) -> None:
    head = write_head(tmp_path / "secret" / "small-head", speculators_config(config))
    engine = engine_of(checkpoint, head)
    assert engine.info.description.endswith(
        "Up to 4 tokens a step are drafted by the draft head 'small-head'."
    )
    assert "secret" not in engine.info.description
    await engine.close()
    other = load_local(checkpoint, EngineOptions(device="cpu", speculation=True), name="s")
    assert other.info.description.endswith("Up to 6 tokens a step are drafted from the text so far.")
    await other.close()
