"""Conversations that the tests of training look at."""

from __future__ import annotations

from random import Random

import pytest

from inference.tiny.shape import Shape
from inference.tiny.skill_call_drills import choices_talk
from inference.tiny.skill_tools import call_talk
from inference.tiny.talk import Talk
from inference.tiny.words import Words


@pytest.fixture(scope="package")
def small_shape() -> Shape:
    """As few layers, heads and dimensions as training and exporting are tried with."""
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
