"""Training beyond the next token: hints for intermediate steps, and impostors in the softmax."""

from __future__ import annotations

import dataclasses
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from inference.tiny.codes import MEANING, VOCABULARY
from inference.tiny.shape import Shape
from recipe.network.model import Layer, TinyGptOss, rotation
from recipe.text.talk import Talk
from recipe.text.vocabulary import token_bytes
from recipe.training import batches
from recipe.training import feeder as feeders
from recipe.training.batches import learned_tokens, packed
from recipe.training.export import main as export_command
from recipe.training.feeder import Feeder
from recipe.training.hints import Hints
from recipe.training.impostors import Impostors
from recipe.training.marks import Marks, marks_of
from recipe.training.train import main as train_command
from recipe.training.trainer import Trainer

pytestmark = pytest.mark.training


def test_an_empty_reader_identifies_nothing_and_a_fitted_one_everything(calls: list[Talk]) -> None:
    torch.manual_seed(0)
    shape = Shape()
    layer, hints = Layer(shape, sliding=False), Hints(shape)
    marks = marks_of(calls, learned_tokens(1))
    nothing = marks.looked[:0]
    marks = dataclasses.replace(
        marks,
        carried=nothing,
        held=nothing,
        tagged=nothing,
        looked=nothing,
        matched=nothing,
        identified=marks.identified[:40],
    )
    x = torch.randn(len(calls), max(len(talk.tokens) for talk in calls), shape.hidden_size)
    cos, sin = rotation(shape, x.shape[1])

    def lacking() -> float:
        hints.begin(marks)
        hints.see(shape.num_hidden_layers - 1, x, layer, cos, sin)
        return hints.measured["tell"]

    assert lacking() == pytest.approx(1)
    solver = torch.optim.Adam((hints.read_first, hints.read_own), lr=0.05)
    for _ in range(200):
        lacking()
        hints.loss.backward()
        solver.step()
        solver.zero_grad()
    assert lacking() < 0.1


def test_a_look_is_measured_like_attention(talks: list[Talk]) -> None:
    torch.manual_seed(0)
    shape = Shape()
    layer = Layer(shape, sliding=False)
    x = torch.randn(len(talks), max(len(talk.tokens) for talk in talks), shape.hidden_size)
    hints = Hints(shape)
    hints.begin(marks_of(talks, learned_tokens(1)))
    cos, sin = rotation(shape, x.shape[1])
    hints.see(shape.num_hidden_layers - 1, x, layer, cos, sin)

    # Each place separately, from the layer's own projections.
    attention = layer.self_attn
    looks = []
    for row, column, begin in hints.marks.looked.tolist():
        normed = x[row] * torch.rsqrt(x[row].square().mean(-1, keepdim=True) + shape.rms_norm_eps)
        for head in range(3):
            q = attention.q_proj(normed)[column, head * 64 : head * 64 + 64]
            k = attention.k_proj(normed)[: column + 1, :64]
            turned = [
                torch.cat((v[..., :32] * c - v[..., 32:] * s, v[..., 32:] * c + v[..., :32] * s), -1)
                for v, c, s in ((q, cos[column], sin[column]), (k, cos[: column + 1], sin[: column + 1]))
            ]
            scores = torch.cat((turned[1] @ turned[0] / 8, attention.sinks[head : head + 1]))
            looks.append(scores.softmax(0)[begin].item())
    assert hints.measured["look"] == pytest.approx(np.mean(looks), rel=1e-4)


def test_hints_count_less_in_a_model_that_starts_from_a_trained_one(calls: list[Talk]) -> None:
    shape = Shape()
    layer, marks = Layer(shape, sliding=False), marks_of(calls, learned_tokens(1))
    x = torch.randn(len(calls), max(len(talk.tokens) for talk in calls), shape.hidden_size)
    losses = []
    for careful in (False, True):
        hints = Hints(shape, careful=careful)
        hints.begin(marks)
        hints.see(shape.num_hidden_layers - 1, x, layer, *rotation(shape, x.shape[1]))
        losses.append(hints.loss.item())
    assert 0 < losses[1] < losses[0] / 2


def test_hints_teach_their_goals(tmp_path: Path, calls: list[Talk]) -> None:
    run = Trainer(tmp_path, Shape(), 1)
    batches = (packed(list(two), run.learned, np.random.default_rng(0), 0.3) for two in pairwise(calls))
    kinds = dataclasses.fields(Marks)
    batch = next(one for one in batches if all(len(getattr(one.marks, kind.name)) for kind in kinds))
    seen = [run.train(batch, 0.1) for _ in range(6)]
    assert seen[-1]["carry"] < seen[0]["carry"]
    assert seen[-1]["hold"] < seen[0]["hold"]
    assert seen[-1]["tag"] < seen[0]["tag"]
    assert seen[-1]["look"] > seen[0]["look"]
    assert seen[-1]["match"] > seen[0]["match"]
    assert seen[-1]["tell"] < seen[0]["tell"]


def test_impostors_are_what_the_model_would_write_instead() -> None:
    torch.manual_seed(0)
    rows = torch.randn(VOCABULARY, 8)
    hidden = rows[[7, 70_000]] * 3
    losses, own = torch.tensor([1.0, 2.0]), torch.tensor([True, True])
    found, _ = Impostors(rows.to, half=False).of(
        hidden, losses, own.nonzero()[:, 0], torch.tensor([7, 70_000])
    )
    scores = hidden @ rows.t()
    scores[:, [7, 70_000]] = -torch.inf
    assert set(scores.argmax(1).tolist()) <= set(found.tolist())
    assert not {7, 70_000} & set(found.tolist())


def test_targets_in_the_prompt_get_no_impostors() -> None:
    rows = torch.randn(VOCABULARY, 8)
    nothing, _ = Impostors(rows.to, half=False).of(
        rows[:3], torch.ones(3), torch.zeros(0, dtype=torch.long), torch.tensor([0])
    )
    assert len(nothing) == 0


def test_a_row_of_the_head_that_is_never_generated_stays_empty(calls: list[Talk], tmp_path: Path) -> None:
    run = Trainer(tmp_path, dataclasses.replace(Shape(), num_hidden_layers=3), 1)
    silent = run.learned[run.silent - 1]
    generated = {
        token for talk in calls for turn in talk.turns for token in talk.tokens[turn.start : turn.end]
    }
    texts = [token_bytes()[token] for token in silent]
    assert len(silent) > 100
    assert (
        len(generated & set(silent.tolist())) < 5
    )  # silent tokens come from a sample without these conversations
    assert all(text.isalpha() for text in texts)
    run.train(packed(calls, run.learned, np.random.default_rng(0), 0.3), 0.1)
    others = np.setdiff1d(np.arange(1, len(run.learned) + 1), run.silent)
    assert (run.model.learned_out[run.silent] == 0).all()
    assert (run.model.learned_out[others] != 0).any()
    assert (run.model.learned_in[run.silent] != 0).any()


def test_onlookers_see_every_layers_input() -> None:
    model = TinyGptOss(shape := Shape(), 3)
    seen: list[tuple[int, torch.Size]] = []
    x = torch.randn(2, 9, shape.hidden_size)
    watched, _ = model(x, lambda place, inputs, *_: seen.append((place, inputs.shape)))
    assert seen == [(place, x.shape) for place in range(shape.num_hidden_layers)]
    assert torch.equal(watched, model(x)[0])


@pytest.mark.parametrize("kind", ["another shape", "older than shapes", "older than meanings"])
def test_a_run_of_another_shape_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Trainer(tmp_path, dataclasses.replace(Shape(), num_hidden_layers=3), 1)
    run.save()
    if kind == "another shape":  # the command uses the recipe's shape
        command, arguments = train_command, ["train", "--folder", str(tmp_path)]
    else:
        saved = torch.load(run.file, weights_only=False)
        if "shapes" in kind:
            del saved["shape"]
        else:
            saved["model"]["map_in"] = saved["model"]["map_in"][: MEANING.start]
        torch.save(saved, run.file)
        command = export_command
        arguments = ["export", "--folder", str(tmp_path), "--to", str(tmp_path / "made")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit):
        command()
    assert (
        f"The run in {tmp_path} has another shape of model than the current recipe" in capsys.readouterr().err
    )
    assert not (tmp_path / "made").exists()


def test_training_ends_with_an_error_if_conversations_fail(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> Talk:
        raise ValueError("no such word")

    monkeypatch.setattr(batches, "make_talk", broken)
    monkeypatch.setattr(feeders, "_PATIENCE", 0.1)
    feeder = Feeder("seed", np.arange(10), 512)
    with pytest.raises(RuntimeError, match="no more conversations"):
        feeder.next()
    feeder.close()
    assert "no such word" in capfd.readouterr().err


def test_a_start_that_cannot_be_widened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = dataclasses.replace(Shape(), num_hidden_layers=3, num_local_experts=2)
    (tmp_path / "other").mkdir()
    run = Trainer(tmp_path / "other", other, 1)
    run.save()
    arguments = ["train", "--folder", str(tmp_path / "made"), "--start", str(run.file)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit):
        train_command()
    assert "it can grow in hidden_size, num_hidden_layers, num_key_value_heads" in capsys.readouterr().err
