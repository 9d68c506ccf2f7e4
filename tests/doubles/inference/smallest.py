"""The smallest checkpoint with the whole vocabulary and random weights: 13 MB, made in an instant."""

from __future__ import annotations

from pathlib import Path

from inference.config import ModelConfig, RopeConfig
from tests.doubles.inference.random_checkpoint import write_random_checkpoint


def write_smallest(folder: Path) -> Path:
    config = ModelConfig(
        layers=1,
        hidden=32,
        intermediate=32,
        vocab_size=201_088,
        heads=2,
        kv_heads=1,
        head_dim=16,
        experts=2,
        experts_per_token=1,
        sliding_window=16,
        sliding_layers=(True,),
        context_length=2_048,
        rope=RopeConfig(),
    )
    return write_random_checkpoint(folder, config, seed=5)
