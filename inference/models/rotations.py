"""The tables by which queries and keys are rotated, for as many positions as are in use.

Takes positions and returns their rows of cos and sin. On a CPU the tables begin short and double when a
longer sequence comes, with the same numbers: for a context of 131,072 they would take a tenth of a second and
70 MB at the start. Elsewhere they are whole, because a recorded step keeps their addresses.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inference.config import RopeConfig
from inference.ops.reference import rope_tables

FIRST_POSITIONS = 4096


class Rotations:
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
