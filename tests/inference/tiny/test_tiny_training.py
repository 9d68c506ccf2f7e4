"""What training asks for beside the next token: hints at steps in between, and impostors in the softmax."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from inference.tiny.batches import learned_tokens, packed
from inference.tiny.codes import VOCABULARY
from inference.tiny.hints import Hints
from inference.tiny.impostors import Impostors
from inference.tiny.marks import declared_names, marks_of
from inference.tiny.model import Layer, TinyGptOss, rotation
from inference.tiny.shape import Shape
from inference.tiny.skill_call_drills import choices_talk
from inference.tiny.skill_tools import call_talk
from inference.tiny.talk import CONSTRAIN, MESSAGE, PAST, Talk
from inference.tiny.trainer import Trainer
from inference.tiny.vocabulary import encoding
from inference.tiny.words import Words


def choices(seed: int) -> Talk:
    rng = Random(f"choices/{seed}")
    return choices_talk(rng, Words(rng, False), False)


@pytest.fixture(scope="module")
def talks() -> list[Talk]:
    return [choices(seed) for seed in range(12)]


@pytest.fixture(scope="module")
def calls() -> list[Talk]:
    rngs = [Random(f"calls/{seed}") for seed in range(30)]
    return [call_talk(rng, Words(rng, False), False, most=3) for rng in rngs]


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
    marks = marks_of([talk], learned_tokens(1))
    assert len(marks.carried) == len(marks.looked) == 0


def test_every_naming_is_marked_with_where_the_name_begins(talks: list[Talk]) -> None:
    marks = marks_of(talks, learned_tokens(1))
    said = 0
    for row, talk in enumerate(talks):
        several = len(declared_names(talk.tokens)) > 1
        said += several * sum(turn.kind == "choice" for turn in talk.turns)
        for _, place, begin in marks.looked[marks.looked[:, 0] == row]:
            assert encoding().decode(talk.tokens[: place + 1]).endswith(", so")
            assert talk.tokens[place + 1] == talk.tokens[begin]
    assert len(marks.looked) == said > 0


def test_a_value_is_marked_with_where_it_begins_in_the_request(calls: list[Talk]) -> None:
    marks, decode = marks_of(calls, learned_tokens(1)), encoding().decode
    marked = values = 0
    for row, talk in enumerate(calls):
        turns = [turn for turn in talk.turns if turn.kind != PAST]
        places = {place: begin for _, place, begin in marks.looked[marks.looked[:, 0] == row].tolist()}
        for turn in (turn for turn in turns if CONSTRAIN in talk.tokens[turn.start : turn.end]):
            body = talk.tokens.index(MESSAGE, talk.tokens.index(CONSTRAIN, turn.start)) + 1
            arguments = json.loads(decode(talk.tokens[body : turn.end - 1]))
            asked = decode(talk.tokens[: turn.start]).rpartition("<|start|>user<|message|>")[2]
            found = sorted(place for place in places if body <= place < turn.end)
            values += len(arguments)
            marked += len(found)
            for place in found:
                begun, source = decode(talk.tokens[body : place + 1]), decode(talk.tokens[places[place] :])
                value = arguments[re.findall(r'"([^"]+)": "?$', begun)[0]]
                assert source.lstrip().startswith(str(value))
                assert asked.count(str(value)) >= 1
    assert marked > values / 2 > 10


def test_words_without_rows_of_their_own_are_marked_where_they_were_said(calls: list[Talk]) -> None:
    told = marks_of(calls, learned_tokens(1)).told
    assert len(told)
    for row, place, token in told.tolist():
        talk = calls[row]
        assert talk.tokens[place] == token
        assert token not in learned_tokens(1)
        assert not any(turn.start <= place < turn.end for turn in talk.turns)
        assert "<|start|>user" in encoding().decode(talk.tokens[:place])


def test_what_is_told_is_nothing_to_an_empty_reader_and_all_to_a_fitted_one(calls: list[Talk]) -> None:
    torch.manual_seed(0)
    shape = Shape()
    layer, hints = Layer(shape, sliding=False), Hints(shape)
    marks = marks_of(calls, learned_tokens(1))
    nothing = marks.looked[:0]
    marks = dataclasses.replace(marks, carried=nothing, looked=nothing, told=marks.told[:40])
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


def test_a_look_is_measured_as_attention_is_defined(talks: list[Talk]) -> None:
    torch.manual_seed(0)
    shape = Shape()
    layer = Layer(shape, sliding=False)
    x = torch.randn(len(talks), max(len(talk.tokens) for talk in talks), shape.hidden_size)
    hints = Hints(shape)
    hints.begin(marks_of(talks, learned_tokens(1)))
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


def test_hints_teach_what_they_ask_for(tmp_path: Path, calls: list[Talk]) -> None:
    run = Trainer(tmp_path, Shape(), 1)
    batch = packed(calls[:2], run.learned, np.random.default_rng(0), 0.3)
    assert all(map(len, (batch.marks.carried, batch.marks.looked, batch.marks.told)))
    seen = [run.train(batch, 0.1) for _ in range(6)]
    assert seen[-1]["carry"] < seen[0]["carry"]
    assert seen[-1]["look"] > seen[0]["look"]
    assert seen[-1]["tell"] < seen[0]["tell"]


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
