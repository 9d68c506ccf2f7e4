"""The model shapes that can run without a checkpoint, for measuring. Imports no framework."""

from inference.config import ModelConfig, RopeConfig


def _of_gpt_oss(layers: int, experts: int) -> ModelConfig:
    return ModelConfig(
        layers=layers,
        hidden=2880,
        intermediate=2880,
        vocab_size=201_088,
        heads=64,
        kv_heads=8,
        head_dim=64,
        experts=experts,
        experts_per_token=4,
        sliding_window=128,
        sliding_layers=tuple(layer % 2 == 0 for layer in range(layers)),
        context_length=131_072,
        rope=RopeConfig(),
    )


SHAPES = {
    "20b": _of_gpt_oss(24, 32),
    "120b": _of_gpt_oss(36, 128),
    "tiny": ModelConfig(
        layers=2,
        hidden=128,
        intermediate=128,
        vocab_size=2_048,
        heads=8,
        kv_heads=2,
        head_dim=16,
        experts=4,
        experts_per_token=2,
        sliding_window=64,
        sliding_layers=(True, False),
        context_length=8_192,
        rope=RopeConfig(),
    ),
}
