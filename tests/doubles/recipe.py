"""A conversation and a shape that several tests of the recipe train on."""

from __future__ import annotations

from random import Random

from inference.tiny.shape import Shape
from recipe.skills.data import SKILLS
from recipe.text.talk import Talk
from recipe.text.words import Words


def talk_of(skill: str, seed: int, held_out: bool = False) -> Talk:
    rng = Random(f"test/{skill}/{seed}")
    return SKILLS[skill](rng, Words(rng, held_out), held_out)


FEW_HEADS = Shape(num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, num_local_experts=2)
