"""Draft heads of both layouts guess as plain arithmetic does, whatever the schedule, and change no token."""

import random
from collections.abc import Sequence as Listed
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.config import ModelConfig
from inference.drafting.head import DraftHead
from inference.drafting.loading import load_draft_head
from inference.engine import Sampling
from inference.local.cuda.recordings import Recordings
from inference.local.cuda.runner import CudaRunner
from inference.local.memory_plan import layer_kinds
from inference.local.scheduling import drafts
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.scheduling.step import Flight, Runner, StepPart, right_drafts
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import GptOss, load_model
from tests.doubles.inference.alone import check_each_as_alone
from tests.doubles.inference.driven import Driven, Prompts, tight_blocks
from tests.doubles.inference.heads import (
    changed_layer,
    llama_config,
    random_tensors,
    speculators_config,
    write_head,
    write_repeating_model,
    write_right_head,
)
from tests.doubles.inference.plain_head import PlainHead
from tests.doubles.inference.random_checkpoint import write_random_checkpoint
from tests.doubles.random_tests.seeds import pairs, seeds

CPU = torch.device("cpu")
CONTEXT, SIZE = 120, 8
CHUNKS = {"max_waiting": 1000, "chunk": 16, "shared_chunk": 9, "least_chunk": 3, "by_head": True}
HEADS = {
    "speculators": speculators_config,
    "llama": llama_config,
    "all tokens": lambda config: speculators_config(config, draft_vocab=config.vocab_size),
    "a norm for each state": lambda config: speculators_config(config, norm_before_fc=False, fc_norm=True),
    "carries the norm": lambda config: speculators_config(config, norm_output=True),
    "a window": lambda config: changed_layer(
        speculators_config(config), layer_types=["sliding_attention"], sliding_window=5
    ),
    "biases": lambda config: changed_layer(speculators_config(config), attention_bias=True),
    "the last state": lambda config: llama_config(config, eagle_config={"use_aux_hidden_state": False}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> GptOss:
    five = replace(config, layers=5, sliding_layers=(True, False, True, False, False))
    folder = write_random_checkpoint(tmp_path_factory.mktemp("model"), five, seed=11)
    return load_model(folder, device=CPU, context=CONTEXT)


class Checked:
    """A runner that compares every guess with a plain head's."""

    engine: Driven

    def __init__(self, runner: Runner, plain: PlainHead) -> None:
        self.runner, self.plain = runner, plain
        self.compared = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def launch(self, parts: Listed[StepPart]) -> Flight:
        known = {each.slot: list(each.tokens) for each in self.engine.scheduler.running}
        flight = self.runner.launch(parts)
        for part, outcome in zip(parts, flight.outcomes(), strict=True):
            assert len(outcome.guesses) in (0, part.guesses)
            if outcome.guesses:
                count = len(part.tokens) - part.samples + 1 + right_drafts(part, outcome)
                tokens = [*known[part.slot][: part.start], *part.tokens[:count], outcome.sampled[-1].token]
                assert list(outcome.guesses) == self.plain.guesses(tokens, len(outcome.guesses))
                self.compared += 1
        return flight


def runner_of(on: str, model: GptOss, blocks: list[int], head: DraftHead, limits: SchedulerLimits) -> Runner:
    if on == "cpu":
        return TorchRunner(model, blocks, SIZE, head)
    options = {"drafts": limits.drafts, "head": head, "graphs": on == "gpu, padded"}
    return CudaRunner(model, blocks, limits.max_concurrent, SIZE, **options)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.proof), "gpu, padded"])
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which runner: a GPU's runs here without recording steps, but pads them as recorded ones are."""
    monkeypatch.setattr(Recordings, "replay", lambda self, numbers, shape: self._compute(numbers, shape))
    return str(request.param)


ON_GPU = [pytest.param("gpu", kind, marks=pytest.mark.proof) for kind in HEADS]


@pytest.mark.parametrize(("on", "kind"), [*pairs(["cpu", "gpu, padded"], HEADS), *ON_GPU], indirect=["on"])
async def test_guesses_are_those_of_the_whole_text_and_change_no_token(
    model: GptOss, tmp_path: Path, kind: str, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With chunks, batches, shared prefixes, preemption and refused drafts."""
    monkeypatch.setattr(drafts, "FIRST_PAUSE", 0)  # a random head is hardly ever right
    raw = HEADS[kind](model.config)
    tensors = random_tensors(raw)
    draw = random.Random(kind)
    limits = SchedulerLimits(max_concurrent=4, drafts=3, **CHUNKS)
    head = load_draft_head(str(write_head(tmp_path / "head", raw, tensors)), model)
    kinds, spare = layer_kinds(model, head, SIZE), draw.choice([1, 21])
    blocks = tight_blocks(kinds, limits, context=CONTEXT, size=SIZE, spare=spare)
    runner = Checked(runner_of(on, model, blocks, head, limits), PlainHead(raw, tensors, model))
    engine = runner.engine = Driven(runner, model.config.windows, blocks, limits)
    prompts = Prompts(draw, CONTEXT // 2, vocabulary=500)
    for turn in range(32):
        if turn % 4 == 0:
            engine.request(prompts.next(), draw.choice([2, 12, 12]), Sampling(temperature=0.0))
        else:
            engine.turn()
    engine.finish()
    check_each_as_alone(engine, model)
    assert engine.cache.used == 0
    assert runner.compared > 15
    assert engine.scheduler.counts.cached_tokens > 0
    assert engine.scheduler.counts.drafted_tokens > 0


def repeating(folder: Path, config: ModelConfig, share: float) -> tuple[GptOss, DraftHead]:
    """A model that repeats itself but for a share of the tokens, and a head that knows what it repeats."""
    checkpoint = write_repeating_model(folder / "model", config, share=share)
    model = load_model(checkpoint, device=CPU, context=CONTEXT)
    return model, load_draft_head(str(write_right_head(folder / "head", checkpoint)), model)


@pytest.mark.parametrize("seed", seeds(1, 2))
async def test_guesses_that_are_often_right_change_no_token(
    tmp_path: Path, config: ModelConfig, seed: int, on: str
) -> None:
    model, head = repeating(tmp_path, config, 0.05)
    draw = random.Random(seed)
    limits = SchedulerLimits(max_concurrent=6, drafts=4, **CHUNKS)
    blocks = [40 if window else 18 for window in model.config.windows]
    runner = runner_of(on, model, blocks, head, limits)
    engine = Driven(runner, model.config.windows, blocks, limits)
    prompts = Prompts(draw, CONTEXT // 2, vocabulary=500)
    for first in range(6):  # more than the blocks hold
        engine.request([first] * 20, 40, Sampling(temperature=0.0))
    for turn in range(42):
        if turn % 3 == 0:
            engine.request(prompts.next(), draw.choice([1, 2, 30, 40]), Sampling(temperature=0.0))
        else:
            engine.turn()
    engine.finish()
    check_each_as_alone(engine, model)
    counts = engine.scheduler.counts
    assert counts.preemptions > 0
    assert 0.2 < counts.accepted_tokens / counts.drafted_tokens < 0.98


async def test_both_runners_draft_and_accept_the_same(tmp_path: Path, config: ModelConfig) -> None:
    model, head = repeating(tmp_path, config, 0.1)
    limits = SchedulerLimits(max_concurrent=2, drafts=4, **CHUNKS)
    found = []
    for on in ("cpu", "gpu"):
        blocks = [40] * len(config.windows)
        engine = Driven(runner_of(on, model, blocks, head, limits), model.config.windows, blocks, limits)
        for first in range(4):
            engine.request([first, 7, first + 40], 40, Sampling(temperature=0.8, seed=first))
        engine.finish()
        found.append((engine.scheduler.counts, [client.tokens for client in engine.clients]))
    assert found[0] == found[1]
    assert 0 < found[0][0].accepted_tokens < found[0][0].drafted_tokens
