"""A new run starts from a trained model: with care, with its optimiser, in a wider model."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from inference.tiny.codes import MEANING
from inference.tiny.shape import Shape
from recipe.network.widen import widened
from recipe.training.batches import Batch, packed
from recipe.training.export import export, state_of
from recipe.training.trainer import CAREFUL_AVERAGE_FROM, CAREFUL_RATE, ROUND_FROM, Trainer, scale_at
from tests.doubles.recipe import FEW_HEADS, talk_of

pytestmark = pytest.mark.training

# Its first layer shares the work with a new one.
DEEPER = replace(FEW_HEADS, num_hidden_layers=FEW_HEADS.num_hidden_layers + 1, sliding_layers=(0, 1, 3))


def trained_and_exported(folder: Path, shape: Shape, steps: int = 12) -> tuple[Trainer, Batch, Path, float]:
    """A run of some steps, its batch, its export, and the loss at the export."""
    run = Trainer(folder, shape, 1)
    # Held out, so that it does not depend on the mixture of training.
    batch = packed([talk_of("call", 4, held_out=True)], run.learned, np.random.default_rng(0), 0.3)
    for _ in range(steps):
        run.train(batch, 0.1)
    run.save()
    file = folder / "small.safetensors"
    export(run.file, file)
    # Measured before the step, with the experts rounded as in the file.
    return run, batch, file, run.train(batch, ROUND_FROM)["own"]


def test_a_run_starts_from_an_export(tmp_path: Path) -> None:
    shape = FEW_HEADS
    run, batch, file, learned = trained_and_exported(tmp_path, shape)
    (tmp_path / "again").mkdir()
    again = Trainer(tmp_path / "again", shape, 1, start=file)
    assert (again.step, again.before["step"]) == (0, run.step - 1)
    # Its schedule starts over with small steps; its file counts the earlier training.
    assert scale_at(0.1, again.step, careful=True) < scale_at(0.1, again.step) / 5
    assert again.train(batch, 0.1)["own"] == pytest.approx(learned, rel=0.02)
    again.save()
    export(again.file, file)
    assert state_of(file)["step"] == run.step
    assert state_of(file)["shape"] == asdict(shape)


def test_a_run_from_a_trained_model_is_careful_and_exports_the_mean_of_all_its_steps(tmp_path: Path) -> None:
    begun, batch, file, _ = trained_and_exported(tmp_path, FEW_HEADS, steps=2)
    again = Trainer(tmp_path / "again", FEW_HEADS, 1, start=file)
    assert (begun.rate, again.rate, again.average.horizon) == (1.0, CAREFUL_RATE, None)
    assert len(again.optimisers) == 1  # Adam's small steps from the start
    seen = []
    for progress in (0.05, CAREFUL_AVERAGE_FROM, 0.2, 0.6):
        again.train(batch, progress)
        seen.append(again.model.norm.detach().clone())
    assert torch.allclose(again.average.weights["norm"], torch.stack(seen[1:]).mean(0), atol=1e-6)


def test_a_new_run_starts_from_a_checkpoint_with_its_optimiser(tmp_path: Path) -> None:
    run, batch, _, _ = trained_and_exported(tmp_path, FEW_HEADS, steps=2)
    run.train(batch, 0.9)
    run.train(batch, 0.95)
    run.save()
    (tmp_path / "again").mkdir()
    again = Trainer(tmp_path / "again", FEW_HEADS, 1, start=run.file)
    assert (again.step, again.before["step"], again.average.steps) == (0, run.step, 0)
    # Its weights are the mean that an export would have; the state of Adam and the hints is kept.
    assert torch.equal(again.model.norm, run.average.weights["norm"])
    assert torch.equal(again.hints.read, run.hints.read)
    mine, theirs = (trainer.optimisers[0].state_dict()["state"] for trainer in (again, run))
    assert mine.keys() == theirs.keys() != set()
    assert all(torch.equal(mine[place]["exp_avg_sq"], theirs[place]["exp_avg_sq"]) for place in mine)
    again.train(batch, 0.1)
    again.save()
    assert Trainer(tmp_path / "again", FEW_HEADS, 1).before == again.before


def test_a_run_from_a_file_has_rounded_experts_from_its_first_step(tmp_path: Path) -> None:
    """An export drops moves of less than half an MXFP4 step, so training must round too."""
    begun = Trainer(tmp_path / "begun", FEW_HEADS, 1)
    _, batch, file, _ = trained_and_exported(tmp_path, FEW_HEADS, steps=2)
    further = Trainer(tmp_path / "further", FEW_HEADS, 1, start=file)
    for run, progress, rounded in ((begun, 0.1, False), (begun, ROUND_FROM, True), (further, 0.0, True)):
        run.train(batch, progress)
        assert all(layer.mlp.quantised is rounded for layer in run.model.layers)


def test_a_wider_model_keeps_what_the_file_has_learned(tmp_path: Path) -> None:
    shape = replace(FEW_HEADS, hidden_size=192)
    _, batch, file, learned = trained_and_exported(tmp_path, shape, steps=18)
    wider = replace(DEEPER, hidden_size=256, num_attention_heads=4, num_key_value_heads=4)
    again = Trainer(tmp_path / "wider", wider, 1, start=file)
    untrained = Trainer(tmp_path / "untrained", wider, 1)
    # The faint output into the new dimensions has a small effect.
    assert again.train(batch, 0.1)["own"] == pytest.approx(learned, abs=0.1)
    assert untrained.train(batch, 0.1)["own"] > 20 * (learned + 0.1)
    with pytest.raises(ValueError, match="it can grow in"):
        Trainer(tmp_path / "narrower", replace(shape, hidden_size=64), 1, start=file)


def test_a_deeper_model_computes_the_same_and_both_layers_contribute(tmp_path: Path) -> None:
    run, batch, _, _ = trained_and_exported(tmp_path, FEW_HEADS, steps=18)
    run.save()
    before = run.model.state_dict()
    count = FEW_HEADS.num_hidden_layers
    again = Trainer(tmp_path / "deeper", DEEPER, 1, start=run.file)
    assert len(again.optimisers) == 1  # nothing in it starts over
    assert torch.equal(again.hints.read, run.hints.read)
    at, state = max(0, count - 3), widened(before, FEW_HEADS, DEEPER)
    for name in ("self_attn.o_proj.weight", "mlp.down_proj", "mlp.down_proj_bias"):
        first, second = (state[f"layers.{place}.{name}"] for place in (at, at + 1))
        assert torch.allclose(first + second, before[f"layers.{at}.{name}"])
        assert not torch.equal(first, second)
    last = "self_attn.q_proj.weight"
    assert torch.equal(state[f"layers.{count}.{last}"], before[f"layers.{count - 1}.{last}"])
    with pytest.raises(ValueError, match=r"sliding_layers must be \(0, 1, 3\)"):
        widened(before, FEW_HEADS, replace(DEEPER, sliding_layers=(0, 2)))
    lacks = again.train(batch, 0.1)["own"]
    assert lacks == pytest.approx(run.train(batch, ROUND_FROM)["own"], rel=0.1)


def test_a_run_starts_from_a_file_without_meanings(tmp_path: Path) -> None:
    run, batch, file, _ = trained_and_exported(tmp_path, FEW_HEADS)
    with safe_open(file, framework="pt") as held:
        tensors, about = {name: held.get_tensor(name) for name in held.keys()}, held.metadata()  # noqa: SIM118
    for name in ("map.in", "map.out"):
        tensors[name] = tensors[name][: MEANING.start].contiguous()
    save_file({name: tensor for name, tensor in tensors.items() if "vectors" not in name}, file, about)
    again = Trainer(tmp_path / "again", run.model.shape, 1, start=file)
    untrained = Trainer(tmp_path / "untrained", run.model.shape, 1)
    assert again.model.map_in[MEANING].norm() > 0
    assert again.train(batch, 0.1)["own"] < untrained.train(batch, 0.1)["own"] / 3
