"""The engine with a folder: restarts, costs, other weights, and what is refused."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import inference
from inference.config import ModelConfig
from inference.engine import CheckpointError, TokenLogprob
from inference.local.cuda.runner import CudaRunner
from inference.local.engine import LocalEngine, load_local
from inference.local.tiers.opening import measured
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import load_model
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, generated
from tests.doubles.inference.random_checkpoint import write_random_checkpoint
from tests.doubles.inference.tiered import RESTORING_PAYS, all_stored


@pytest.fixture(autouse=True)
def _restoring_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """These models compute a token faster than a busy disk may read it."""
    monkeypatch.setattr("inference.local.tiers.opening.measured", lambda *_: RESTORING_PAYS)


@pytest.mark.parametrize("cuda", [False, True])
def test_the_costs_are_measured(checkpoint: Path, tmp_path: Path, cuda: bool) -> None:
    model = load_model(checkpoint, device=torch.device("cpu"))
    runner = CudaRunner(model, [9, 9], 2, 16) if cuda else TorchRunner(model, [9, 9], 16)
    costs = measured(runner, runner.memory, 2, 32, tmp_path)
    assert costs.token > 0
    assert 0 < costs.memory_byte < costs.disk_byte
    assert measured(runner, runner.memory, 2, 32, None).disk_byte > 0
    assert list(tmp_path.iterdir()) == []


def loaded(checkpoint: Path, folder: Path | None, **options: object) -> LocalEngine:
    chosen = EngineOptions(
        device="cpu", max_concurrent=2, cache_dir=None if folder is None else str(folder), **options
    )  # type: ignore[arg-type]
    return load_local(checkpoint, chosen, name="small")


async def scored(engine: LocalEngine, prompt: list[int]) -> tuple[list[TokenLogprob], int]:
    steps = (await generated(engine, replace(GREEDY, max_tokens=20, logprobs=20), prompt)).steps
    return [score for step in steps for score in step.logprobs or ()], sum(
        step.cached_tokens for step in steps
    )


async def test_a_restarted_engine_has_the_logits_of_an_uninterrupted_one_bit_for_bit(
    checkpoint: Path, tmp_path: Path
) -> None:
    draw = random.Random(3)
    prompt = [draw.randrange(500) for _ in range(611)]
    uninterrupted = loaded(checkpoint, tmp_path / "cache")
    first, _ = await scored(uninterrupted, prompt)
    turn = [*prompt, *(score.token for score in first), *range(30)]
    await all_stored(uninterrupted)
    shutil.copytree(tmp_path / "cache", tmp_path / "killed")
    wanted, cached = await scored(uninterrupted, turn)
    restarted = loaded(checkpoint, tmp_path / "killed")
    assert await scored(restarted, turn) == (wanted, cached)
    measures = restarted.measures()
    assert cached == measures["restored_from_disk"] == 624
    assert measures["cache_read_bytes"] > 0
    assert measures["cache_saved_seconds"] >= 0
    for engine in (uninterrupted, restarted):
        await engine.close()


async def test_an_engine_that_ends_writes_what_waits(checkpoint: Path, tmp_path: Path) -> None:
    engine = loaded(checkpoint, tmp_path)
    await scored(engine, [1] * 500)
    await engine.close()
    engine = loaded(checkpoint, tmp_path)
    assert (await scored(engine, [1] * 500))[1] == 496
    await engine.close()


async def test_other_weights_share_nothing(config: ModelConfig, checkpoint: Path, tmp_path: Path) -> None:
    folder, moved = tmp_path / "cache", tmp_path / "moved"
    other = write_random_checkpoint(tmp_path / "other", config, seed=4)
    shutil.copytree(checkpoint, moved)
    found = []
    for each in (checkpoint, other, moved, other):
        engine = loaded(each, folder)
        found.append((await scored(engine, [1] * 100))[1])
        await engine.close()
    assert found == [0, 0, 96, 96]


def test_what_cannot_be_cached_is_refused_with_a_sentence(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"--cache-dir: .*/file cannot be used: .* Choose a folder"):
        loaded(checkpoint, tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"--cache-dir: .* home"):
        loaded(checkpoint, Path("~nobody-here/x"))
    with pytest.raises(CheckpointError, match="needs the files of a checkpoint"):
        inference.load("random:tiny", device="cpu", options=EngineOptions(cache_dir=str(tmp_path)))
    with pytest.raises(CheckpointError, match="--cache-dir has no effect"):
        inference.load("scripted:x", options=EngineOptions(cache_dir=str(tmp_path)))
