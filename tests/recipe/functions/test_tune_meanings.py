"""Similarities of words: the effect of tuning on their vectors, and the shipped result."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from inference.tiny.codes import MEANING_DIM
from inference.tiny.shape import Shape
from recipe.evaluation.usual import FILE as USUAL
from recipe.functions import tune_meanings
from recipe.functions.tool_sets import may_mean_both
from recipe.functions.tool_stock import sets_of_tools, tools_of_the_stock
from recipe.functions.tune_meanings import Looks, places_in, tune
from recipe.network.wiring import slow_places
from recipe.text.meanings import COMPARED, FILE, meanings
from recipe.text.vocabulary import ids_by_bytes, likeness

pytestmark = pytest.mark.training

FOUND_FROM = 139  # the least product of matching words in the shipped file, as tuning printed it


def tokens(*words: str) -> list[int]:
    return [ids_by_bytes()[f" {word}".encode()] for word in words]


@pytest.fixture
def looks() -> Looks:
    """The initial state of tuning, with the shipped vectors."""
    return Looks(torch.from_numpy(meanings()[1].astype(np.float32))[:, :COMPARED])


def test_the_heads_compare_all_tuned_numbers() -> None:
    assert len(slow_places(Shape().head_dim)) == COMPARED


@pytest.mark.parametrize(
    ("requested", "function"),
    [
        ("umbrella", "weather"),
        ("quieter", "volume"),
        ("cab", "taxi"),
        ("dim", "brightness"),
        ("sushi", "restaurant"),
    ],
)
def test_words_of_requests_are_close_to_those_of_their_functions(requested: str, function: str) -> None:
    alike = likeness(tokens(requested), tokens(function, "invoice", "thermostat", "calendar"))[0]
    assert alike[0] > FOUND_FROM > alike[1:].max()


def test_a_request_finds_its_function_among_others(looks: Looks) -> None:
    functions = ["current weather city", "add product shopping cart", "call taxi"]
    requests = ["need umbrella", "put milk in the basket", "get me cab"]
    with torch.inference_mode():
        scores = looks(*([places_in(f" {text}") for text in texts] for texts in (requests, functions)))
    assert scores.argmax(1).tolist() == [0, 1, 2]


def test_the_vectors_alone_choose_most_of_the_usual_functions(looks: Looks) -> None:
    """For requests outside the tuning data: the best of the declared functions, by words alone."""
    with torch.no_grad():
        looks.terms[1] = looks.terms[0] + math.log(FOUND_FROM)
    right = several = 0
    for listed in json.loads(USUAL.read_text("utf-8")):
        for request, declared, name, _ in listed["cases"]:
            tools = [listed["tools"][key] for key in declared]
            if len(tools) > 1:
                functions = [
                    places_in(f" {tool['description'].partition('. ')[0]}: {tool['name']}") for tool in tools
                ]
                with torch.inference_mode():
                    scores = looks([places_in(f" {request}")], functions)[0]
                right += tools[int(scores.argmax())]["name"] == name
                several += 1
    assert several > 150
    assert right > 0.85 * several, right


def test_tuning_learns_from_the_stock_alone() -> None:
    looks, losses = tune(steps=5, seed=3, report=0)
    assert losses[-1] < 0.8 * losses[0]
    numbers = looks.rounded().detach()
    assert (numbers == numbers.round()).all()
    assert numbers.abs().max() <= 7


def test_a_request_that_fits_two_functions_counts_against_neither() -> None:
    entries = [*sets_of_tools()[0], *tools_of_the_stock()[:30]]
    both = may_mean_both(entries)
    size = len(sets_of_tools()[0])
    for one in range(size):
        assert both[one][:size] == [one == other for other in range(size)]
    weather = [at for at, entry in enumerate(entries) if "get_weather" in entry["names"]]
    assert all(both[one][other] for one in weather for other in weather)
    assert 0 < sum(map(sum, both)) < len(entries) ** 2


def test_the_file_keeps_its_words_and_the_uncompared_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "tuned.npz"
    monkeypatch.setattr(sys, "argv", ["tune_meanings", "--steps", "1", "--to", str(made)])
    tune_meanings.main()
    assert "words moved" in capsys.readouterr().out
    with np.load(made) as tuned, np.load(FILE) as shipped:
        assert (tuned["words"] == shipped["words"]).all()
        assert tuned["vectors"].shape == shipped["vectors"].shape
        rest = slice(COMPARED // 2, MEANING_DIM // 2)  # two numbers are a byte
        assert (tuned["vectors"][:, rest] == shipped["vectors"][:, rest]).all()
