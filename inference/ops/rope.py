"""Rotary embedding: the tables by which queries and keys are rotated, for as many positions as are in use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inference.config import RopeConfig

FIRST_POSITIONS = 4096


class Rotations:
    """On a CPU the tables begin short and double when a longer sequence comes, with the same numbers.

    For a context of 131,072 they would take a tenth of a second and 70 MB at the start. Elsewhere they are
    whole, because a recorded step keeps their addresses.
    """

    def __init__(self, rope: RopeConfig, head_dim: int, context_length: int, device: torch.device) -> None:
        self._rope, self._head_dim, self._device = rope, head_dim, device
        self._grows = device.type == "cpu"
        self._most = context_length
        self._cos, self._sin = self._tables(min(FIRST_POSITIONS, self._most) if self._grows else self._most)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for T positions, each T × D."""
        if self._grows:
            self._reach(int(positions.max()) + 1)
        return self._cos[positions], self._sin[positions]

    def _reach(self, length: int) -> None:
        if len(self._cos) < min(length, self._most):
            self._cos, self._sin = self._tables(min(max(length, 2 * len(self._cos)), self._most))

    def _tables(self, positions: int) -> tuple[Tensor, Tensor]:
        cos, sin = rope_tables(self._rope, self._head_dim, positions)
        return cos.to(self._device), sin.to(self._device)


def rope_frequencies(rope: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """Radians per position for each of the D/2 pairs, and YaRN's factor on cos and sin (else 1)."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32)
    plain = 1.0 / rope.theta ** (pairs / head_dim)
    if rope.factor <= 1.0:
        return plain, 1.0 if rope.concentration is None else rope.concentration
    if rope.by_turns:
        turns = rope.original_context * plain / (2 * math.pi)
        kept = ((turns - rope.beta_slow) / (rope.beta_fast - rope.beta_slow)).clamp(0, 1)
        return plain * (kept + (1 - kept) / rope.factor), 1.0
    low, high = (_pair_turning(turns, rope, head_dim) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = ((pairs / 2 - low) / max(high - low, 0.001)).clamp(0, 1)
    frequencies = plain / rope.factor * ramp + plain * (1 - ramp)
    concentration = 0.1 * math.log(rope.factor) + 1.0 if rope.concentration is None else rope.concentration
    return frequencies, concentration


def _pair_turning(turns: float, rope: RopeConfig, head_dim: int) -> float:
    """The pair (a fraction) that makes `turns` turns over the context of the model's first training."""
    return head_dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def rope_tables(rope: RopeConfig, head_dim: int, positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin, each positions × D, laid out for `apply_rope`: the sine holds the signs of the halves."""
    frequencies, concentration = rope_frequencies(rope, head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    # Writing in place takes a third less time for a context of 131,072.
    cos, sin = torch.empty(2, positions, 2, len(frequencies))
    torch.mul(angles.cos(), concentration, out=cos[:, 0])
    torch.mul(angles.sin_(), concentration, out=sin[:, 1])
    cos[:, 1] = cos[:, 0]
    torch.neg(sin[:, 1], out=sin[:, 0])
    return cos.view(positions, head_dim), sin.view(positions, head_dim)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x (T × N × D) by tables (T × D); the pairs are (i, i + D/2)."""
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * cos.unsqueeze(1), swapped, sin.unsqueeze(1)).to(x.dtype)
