"""The sizes of the embedded model, for training it and for writing its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes by their names in config.json."""

    num_hidden_layers: int = 7
    hidden_size: int = 320
    learned_size: int = 192  # the dimensions of a token's learned row; the layers use the others
    intermediate_size: int = 128
    num_attention_heads: int = 12
    num_key_value_heads: int = 4
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
    sliding_layers: tuple[int, ...] = (0, 2)  # these see only the window

    @property
    def learned_width(self) -> int:
        return min(self.learned_size, self.hidden_size)
