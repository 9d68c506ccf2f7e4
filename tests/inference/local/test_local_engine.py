"""The local engine's promises beyond the contract: isolation, bounds, fairness, and release of memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference import outbox as outbox_module
from inference.engine import CheckpointError, Engine, EngineFailed, Sampling
from inference.local import torch_runner
from inference.local.checkpoint_defaults import generation_defaults
from inference.local.engine import LocalEngine, load_local
from inference.local.sampling.sampler import Sampler
from inference.local.scheduling.step import Sampled, StepPart
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import GptOss
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, PROMPT, EngineContract, becomes_idle, generated

pytestmark = pytest.mark.anyio
ENDLESS = replace(GREEDY, max_tokens=None)


@pytest.fixture
async def engine(checkpoint: Path) -> AsyncIterator[LocalEngine]:
    engine = load_local(checkpoint, EngineOptions(device="cpu"), name="small")
    yield engine
    await engine.close()


class TestContract(EngineContract):
    @pytest.fixture
    async def engine(self, checkpoint: Path) -> AsyncIterator[Engine]:
        engine = load_local(checkpoint, EngineOptions(device="cpu", context=600), name="small")
        yield engine
        await engine.close()


def break_sampling(monkeypatch: pytest.MonkeyPatch, when: int, breakage: Callable[[Any], Any]) -> None:
    """Applies `breakage` to the logits of a generation once `when` of its tokens are computed."""
    original = torch_runner._sample

    def broken(part: StepPart, sampler: Sampler, logits: torch.Tensor, sampled: list[Sampled]) -> None:
        ends = part.start + len(part.tokens) == when
        original(part, sampler, breakage(logits) if ends else logits, sampled)

    monkeypatch.setattr(torch_runner, "_sample", broken)


def not_finite(logits: torch.Tensor) -> torch.Tensor:
    return logits * float("nan")


def break_forward(monkeypatch: pytest.MonkeyPatch, when: int) -> None:
    """Makes the model fail in every step that includes this position."""
    original = GptOss.forward

    def broken(self: GptOss, tokens: torch.Tensor, positions: torch.Tensor, *rest: Any) -> torch.Tensor:
        if when in positions.tolist():
            raise RuntimeError("no such position")
        return original(self, tokens, positions, *rest)

    monkeypatch.setattr(GptOss, "forward", broken)


async def test_a_long_prompt_does_not_delay_a_short_one(engine: LocalEngine) -> None:
    small = {"chunk": 8, "least_chunk": 8, "shared_chunk": 8}
    engine._scheduler.limits = replace(engine._scheduler.limits, **small)
    long = asyncio.create_task(generated(engine, replace(GREEDY, max_tokens=2), [1] * 900))
    await generated(engine, replace(GREEDY, max_tokens=5), [1])
    assert not long.done()
    await long


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The number of tokens of each generation, step by step."""
    seen: list[list[int]] = []
    original = TorchRunner.launch

    def watched(self: TorchRunner, parts: Sequence[StepPart]) -> torch_runner.Landed:
        seen.append([len(part.tokens) for part in parts])
        return original(self, parts)

    monkeypatch.setattr(TorchRunner, "launch", watched)
    return seen


ONCE = replace(GREEDY, max_tokens=1)


async def test_chunks_are_smaller_while_another_generation_samples(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, steps: list[list[int]]
) -> None:
    # Room for every token: the reader below does not read meanwhile.
    monkeypatch.setattr(outbox_module.Outbox.__init__, "__defaults__", (10_000,))
    once = [replace(ONCE, cache_salt=salt) for salt in "abc"]
    alone = await generated(engine, once[0], [1] * 600)
    assert steps == [[256], [256], [88]]
    async with aclosing(engine.generate([1], ENDLESS)) as stream:
        await anext(stream)
        steps.clear()
        concurrent = await generated(engine, once[1], [1] * 600)
    chunks = [step[1:] for step in steps]
    assert chunks[chunks.index([64]) :][:10] == [[64]] * 9 + [[24]]
    assert concurrent.tokens == alone.tokens
    await becomes_idle(engine)
    steps.clear()
    await generated(engine, once[2], [1] * 600)
    assert steps == [[256], [256], [88]]


async def test_short_prompts_that_arrive_together_are_read_together(
    engine: LocalEngine, steps: list[list[int]]
) -> None:
    """Even while another generation samples: else the last would wait for as many steps as there are."""
    async with aclosing(engine.generate([1], ENDLESS)) as stream:
        await anext(stream)
        steps.clear()
        await asyncio.gather(*(generated(engine, ONCE, [first] * 64) for first in range(2, 6)))
    read = [sum(size for size in step if size > 1) for step in steps]
    assert max(read) == 256
    assert sum(size > 0 for size in read) <= 2  # the first may have arrived alone


async def test_prompts_share_the_budget_of_a_step(engine: LocalEngine, steps: list[list[int]]) -> None:
    await asyncio.gather(*(generated(engine, ONCE, [first] * 400) for first in range(4)))
    assert [64] * 4 in steps
    assert all(sum(step) <= 256 for step in steps)


async def test_a_seed_gives_the_same_tokens_among_other_generations(engine: LocalEngine) -> None:
    seeds = [replace(GREEDY, temperature=1.0, top_p=0.9, seed=seed) for seed in (1, 5, None, 7, 5)]
    alone = await generated(engine, seeds[1])
    concurrent = await asyncio.gather(*(generated(engine, sampling) for sampling in seeds))
    assert concurrent[1].tokens == concurrent[4].tokens == alone.tokens
    assert len({found.tokens for found in concurrent}) == 4


@pytest.mark.parametrize("at", [1, 7, 20])
async def test_a_continued_generation_is_as_if_it_had_never_stopped(engine: LocalEngine, at: int) -> None:
    """Its random numbers and its penalties follow those of the tokens before."""
    sampling = replace(GREEDY, temperature=1.0, seed=5, presence_penalty=0.4, frequency_penalty=0.3)
    whole = (await generated(engine, sampling)).tokens
    rest = replace(sampling, max_tokens=40 - at, continued=whole[:at])
    prompt = [*PROMPT, *whole[:at]]
    assert (await generated(engine, rest, prompt)).tokens == whole[at:]
    assert (await generated(engine, replace(rest, continued=()), prompt)).tokens != whole[at:]


@pytest.mark.parametrize("breakage", [not_finite, lambda logits: logits.no_such_thing, None])
async def test_a_failure_ends_only_its_own_generation(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, breakage: Any
) -> None:
    wanted = (await generated(engine)).tokens
    if breakage is None:
        break_forward(monkeypatch, 199)
    else:
        break_sampling(monkeypatch, 200, breakage)
    doomed = asyncio.create_task(generated(engine, ENDLESS, [1] * 190))
    well = [asyncio.create_task(generated(engine)) for _ in range(3)]
    with pytest.raises(EngineFailed):
        await doomed
    assert [(await task).tokens for task in well] == [wanted] * 3
    assert (await generated(engine)).tokens == wanted
    await becomes_idle(engine)


async def test_tokens_sampled_before_a_failure_are_read_first(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_sampling(monkeypatch, 20, not_finite)
    tokens: list[int] = []
    with pytest.raises(EngineFailed, match="not finite"):  # noqa: PT012
        async for step in engine.generate([1] * 10, ENDLESS):
            tokens += step.tokens
    assert len(tokens) == 10


STATED: dict[str, Any] = {"max_new_tokens": 5, "repetition_penalty": 1.2, "top_k": 40}
DEFAULTS_OF = [
    ({"temperature": 0.7, "top_p": None}, Sampling(temperature=0.7)),
    ({"temperature": 0.7, "do_sample": False}, Sampling(temperature=0.0)),
    ({"temperature": 0.7, "do_sample": True, "top_k": -1}, Sampling(temperature=0.7)),
    (STATED, Sampling(max_tokens=5, repetition_penalty=1.2, top_k=40)),
    ({"eos_token_id": [7, 200002]}, Sampling(stop_token_ids=Sampling().stop_token_ids | {7})),
    ({"eos_token_id": 7}, Sampling(stop_token_ids=Sampling().stop_token_ids | {7})),
    *[(bad, None) for bad in ([], {"top_p": "x"}, {"top_p": 2}, {"top_k": 1.5}, {"max_new_tokens": 0})],
    *[({"eos_token_id": bad}, None) for bad in (-1, [201_088], "x", [True])],
]


@pytest.mark.parametrize(("content", "defaults"), DEFAULTS_OF)
def test_defaults_of_the_checkpoint_are_read_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Any, defaults: Sampling | None
) -> None:
    caplog.set_level("INFO")
    assert generation_defaults(tmp_path) == Sampling()
    (tmp_path / "generation_config.json").write_text(json.dumps(content), encoding="utf-8")
    if defaults is None:
        with pytest.raises(CheckpointError, match="generation_config"):
            generation_defaults(tmp_path)
        return
    assert generation_defaults(tmp_path) == defaults
    assert all(
        f"{key}={json.dumps(value)}" in caplog.text for key, value in content.items() if value is not None
    )
