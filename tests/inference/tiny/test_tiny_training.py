"""What training asks for beside the next token: hints at steps in between, and impostors in the softmax."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from inference.tiny.batches import packed
from inference.tiny.codes import VOCABULARY
from inference.tiny.hints import Hints, declared_names, marks_of
from inference.tiny.impostors import Impostors
from inference.tiny.model import Layer, TinyGptOss, rotation
from inference.tiny.shape import Shape
from inference.tiny.skill_call_drills import choices_talk
from inference.tiny.talk import Talk
from inference.tiny.train import Trainer
from inference.tiny.vocabulary import encoding
from inference.tiny.words import Words


def choices(seed: int) -> Talk:
    rng = Random(f"choices/{seed}")
    return choices_talk(rng, Words(rng, False), False)


@pytest.fixture(scope="module")
def talks() -> list[Talk]:
    return [choices(seed) for seed in range(12)]


def test_declared_names_are_found_where_they_begin(talks: list[Talk]) -> None:
    for talk in talks:
        names = declared_names(talk.tokens)
        written = {encoding().decode(list(name)).strip(): begin for name, begin in names.items()}
        assert set(written) == {tool.name for tool in talk.tools}
        for begin in written.values():
            assert encoding().decode(talk.tokens[:begin]).endswith("\ntype")


def test_no_name_is_found_where_nothing_is_declared() -> None:
    talk = Talk("chat")
    talk.open(None)
    talk.user("Which type get_weather = is it?\ntype")
    assert declared_names(talk.tokens) == {}
    assert len(marks_of([talk]).carried) == len(marks_of([talk]).looked) == 0


def test_every_naming_is_marked_with_where_the_name_begins(talks: list[Talk]) -> None:
    marks = marks_of(talks)
    said = 0
    for row, talk in enumerate(talks):
        several = len(declared_names(talk.tokens)) > 1
        said += several * sum(turn.kind == "choice" for turn in talk.turns)
        for _, place, begin in marks.looked[marks.looked[:, 0] == row]:
            assert encoding().decode(talk.tokens[: place + 1]).endswith(", so")
            assert talk.tokens[place + 1] == talk.tokens[begin]
    assert len(marks.looked) == said > 0


def test_a_look_is_measured_as_attention_is_defined(talks: list[Talk]) -> None:
    torch.manual_seed(0)
    shape = Shape()
    layer = Layer(shape, sliding=False)
    x = torch.randn(len(talks), max(len(talk.tokens) for talk in talks), shape.hidden_size)
    hints = Hints(shape)
    hints.begin(marks_of(talks))
    cos, sin = rotation(shape, x.shape[1])
    hints.see(shape.num_hidden_layers - 1, x, layer, cos, sin)

    # Each place by itself, from the layer's own projections.
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


def test_hints_teach_what_they_ask_for(tmp_path: Path, talks: list[Talk]) -> None:
    run = Trainer(tmp_path, Shape(), 1)
    batch = packed(talks[:4], run.learned, np.random.default_rng(0), 0.3)
    seen = [run.train(batch, 0.1) for _ in range(25)]
    assert seen[-1]["carry"] < seen[0]["carry"]
    assert seen[-1]["look"] > seen[0]["look"]


def test_impostors_are_what_would_be_said_instead() -> None:
    torch.manual_seed(0)
    rows = torch.randn(VOCABULARY, 8)
    hidden = rows[[7, 70_000]] * 3
    losses, own = torch.tensor([1.0, 2.0]), torch.tensor([True, True])
    found = Impostors(lambda ids: rows[ids]).of(hidden, losses, own, torch.tensor([7, 70_000]))
    scores = hidden @ rows.t()
    scores[:, [7, 70_000]] = -torch.inf
    assert set(scores.argmax(1).tolist()) <= set(found.tolist())
    assert not {7, 70_000} & set(found.tolist())


def test_no_impostor_is_looked_for_where_the_prompt_is_the_target() -> None:
    rows = torch.randn(VOCABULARY, 8)
    nothing = Impostors(lambda ids: rows[ids]).of(
        rows[:3], torch.ones(3), torch.zeros(3, dtype=torch.bool), torch.tensor([0])
    )
    assert len(nothing) == 0


def test_onlookers_are_shown_every_layers_input() -> None:
    model = TinyGptOss(Shape(), 3)
    seen: list[tuple[int, torch.Size]] = []
    x = torch.randn(2, 9, 192)
    watched, _ = model(x, lambda place, inputs, *_: seen.append((place, inputs.shape)))
    assert seen == [(place, x.shape) for place in range(5)]
    assert torch.equal(watched, model(x)[0])
