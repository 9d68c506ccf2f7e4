"""The model shapes that can run without a checkpoint, for measuring. Imports no framework."""

from dataclasses import replace
from typing import Any

from inference.config import ModelConfig, RopeConfig, alternating

_20B = ModelConfig(
    layers=24,
    hidden=2880,
    intermediate=2880,
    vocab_size=201_088,
    heads=64,
    kv_heads=8,
    head_dim=64,
    experts=32,
    experts_per_token=4,
    sliding_window=128,
    sliding_layers=alternating(24),
    context_length=131_072,
    rope=RopeConfig(),
)
_TINY: dict[str, Any] = {"hidden": 128, "intermediate": 128, "vocab_size": 2_048, "context_length": 8_192}
_TINY |= {"heads": 8, "kv_heads": 2, "head_dim": 16, "experts": 4, "experts_per_token": 2}
SHAPES = {
    "20b": _20B,
    "120b": replace(_20B, layers=36, experts=128, sliding_layers=alternating(36)),
    "tiny": replace(_20B, layers=2, sliding_layers=alternating(2), sliding_window=64, **_TINY),
}
