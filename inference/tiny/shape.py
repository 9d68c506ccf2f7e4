"""The sizes of the tiny model, the same for training it and for writing its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of the model; the names are those of config.json."""

    num_hidden_layers: int = 5
    hidden_size: int = 192
    intermediate_size: int = 128
    num_attention_heads: int = 9
    num_key_value_heads: int = 3
    head_dim: int = 64  # a code fits into one head
    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    sliding_window: int = 128
    swiglu_limit: float = 7.0
    rms_norm_eps: float = 1e-5
    rope_theta: float = 150_000.0
    rope_factor: float = 32.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 4096
    context: int = 131_072

    @property
    def sliding_layers(self) -> range:
        """Every other layer, the first one first; the last one sees all."""
        return range(0, self.num_hidden_layers - 1, 2)
