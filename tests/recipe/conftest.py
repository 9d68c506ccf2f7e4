"""Small shapes and conversations that the tests of the recipe share."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from inference.tiny.shape import Shape
from recipe.skills.call_drills import choices_talk
from recipe.skills.calls import call_talk
from recipe.text.talk import Talk
from recipe.text.words import Words
from tests.doubles.inference.threads import one_thread


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """With a busy neighbour, two OpenMP threads are slower than one."""
    with one_thread():
        yield


@pytest.fixture(scope="package")
def small_shape() -> Shape:
    """The fewest layers, heads and dimensions with which training and exporting work."""
    return Shape(
        num_hidden_layers=3,
        hidden_size=32,
        intermediate_size=32,
        num_attention_heads=3,
        num_key_value_heads=3,
    )


def choices(seed: int) -> Talk:
    rng = Random(f"choices/{seed}")
    return choices_talk(rng, Words(rng, False), False)


@pytest.fixture(scope="package")
def talks() -> list[Talk]:
    return [choices(seed) for seed in range(12)]


@pytest.fixture(scope="package")
def calls() -> list[Talk]:
    rngs = [Random(f"calls/{seed}") for seed in range(30)]
    return [call_talk(rng, Words(rng, False), False, most=3) for rng in rngs]
