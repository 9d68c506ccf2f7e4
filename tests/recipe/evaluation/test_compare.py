"""Comparing states of the model: the loss equals that of the served model; means match rows by token."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from inference.models.gpt_oss import load_model
from inference.tiny.expand import COMPACT, write_expanded
from inference.tiny.shape import Shape
from recipe.evaluation.compare import Scorer, held_out_talks
from recipe.evaluation.compare import main as compare_command
from recipe.network.model import TinyGptOss
from recipe.text.talk import PAST
from recipe.training.export import compact, export, weights_of

pytestmark = pytest.mark.training


@torch.inference_mode()
def test_the_loss_equals_that_of_the_served_model(tmp_path: Path) -> None:
    talks = held_out_talks(3, "call", 1)
    weights, saved = weights_of(COMPACT)
    score = Scorer(weights, saved["learned"], Shape(**saved["shape"])).score(talks)
    write_expanded(tmp_path)
    served = load_model(tmp_path, device=torch.device("cpu"))
    losses, right = [], 0
    for talk in talks:
        logits = served.all_logits(talk.tokens, served.new_cache())
        for turn in talk.turns:
            wanted = torch.tensor(talk.tokens[turn.start : turn.end])
            given = logits[turn.start - 1 : turn.end - 1]
            losses.append(F.cross_entropy(given, wanted, reduction="none"))
            if turn.kind not in (PAST, "answer"):
                right += torch.equal(given.argmax(1), wanted)
    assert score.calls == 3
    assert score.right == right
    assert score.loss == pytest.approx(torch.cat(losses).mean().item(), rel=0.05, abs=1e-5)


def test_the_command_shows_a_difference_between_files(
    tmp_path: Path, small_shape: Shape, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [written(tmp_path, f"{seed}.safetensors", small_shape, [17, 5_000], seed) for seed in (1, 2)]
    monkeypatch.setattr(sys, "argv", ["compare", "--cases", "2", *map(str, files)])
    compare_command()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{files[0]}  loss ")
    assert first.endswith("0/2 calls right at every step")
    assert first.split()[2] != second.split()[2]
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path / "none.safetensors")])
    with pytest.raises(SystemExit):
        compare_command()
    assert f"{tmp_path / 'none.safetensors'} does not exist" in capsys.readouterr().err


def test_a_mean_of_several_files_combines_rows_of_the_same_token(tmp_path: Path, small_shape: Shape) -> None:
    begun = written(tmp_path, "begun.safetensors", small_shape, [17, 5_000, 90_000], 1)
    others = [
        written(tmp_path, "other.safetensors", small_shape, [3, 17, 90_000], 2),
        written(tmp_path, "third.safetensors", small_shape, [5_000, 17], 3),
    ]
    mean = tmp_path / "mean.safetensors"
    export(begun, mean, others, share=[0.5])
    (ours, saved), (second, _), (third, _) = (weights_of(file) for file in (begun, *others))
    found, held = weights_of(mean)
    assert held["learned"].tolist() == saved["learned"].tolist()
    wanted = 0.5 * ours["map_in"] + 0.25 * second["map_in"] + 0.25 * third["map_in"]
    assert torch.allclose(found["map_in"], wanted, atol=2e-3)
    rows, first, other, last = (state["learned_in"] for state in (found, ours, second, third))
    for row, parts in ((1, (first[1], other[2], last[2])), (2, (first[2], first[2], last[1]))):
        # A file without a row leaves the mean so far unchanged.
        so_far = torch.lerp(parts[0], parts[1], 0.25 / 0.75)
        assert torch.allclose(rows[row], torch.lerp(so_far, parts[2], 0.25), atol=0.03)


def test_each_file_counts_in_a_mean_by_its_share(tmp_path: Path, small_shape: Shape) -> None:
    files = [written(tmp_path, f"{seed}.safetensors", small_shape, [17, 5_000], seed) for seed in (1, 2, 3)]
    mean = tmp_path / "mean.safetensors"
    first, second, third = (weights_of(file)[0]["map_in"] for file in files)
    for shares in ([0.6, 0.1, 0.3], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]):
        export(files[0], mean, files[1:], share=shares)
        wanted = shares[0] * first + shares[1] * second + shares[2] * third
        assert torch.allclose(weights_of(mean)[0]["map_in"], wanted, atol=2e-3)
    for wrong in ([0.6, 0.4], [0.5, 0.5, 0.5], [1.5], [1.2, -0.1, -0.1]):
        with pytest.raises(ValueError, match=r"give one number from 0 to 1 for the run, or 3"):
            export(files[0], mean, files[1:], share=wrong)


def written(folder: Path, name: str, shape: Shape, learned: list[int], seed: int) -> Path:
    """An exported file of an untrained model with random learned rows."""
    torch.manual_seed(seed)
    model = TinyGptOss(shape, len(learned))
    for rows in (model.learned_in, model.learned_out, model.map_in, model.map_out):
        torch.nn.init.normal_(rows)
    state = model.state_dict()
    state["learned_in"][0] = state["learned_out"][0] = 0
    about = {"shape": json.dumps(asdict(shape)), "step": "1", "tokens": "1", "seconds": "1"}
    save_file(compact(state, torch.tensor(learned)), folder / name, metadata=about)
    return folder / name
