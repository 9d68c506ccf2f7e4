"""Weights in 16 bits for products on a CPU, in the order in which FBGEMM reads them.

Takes rows of weights and returns products with them in float32: FBGEMM widens the weights while it reads
them. A step of a few rows reads every weight once and waits for memory, so half the bytes are half the time;
with 256 rows the time is that of floats. It must not know what the weights belong to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_WORST = 2.0**-25  # half of the smallest half: bf16 numbers from 6e-5 upwards are exact


class HalfRows:
    """Rows R×C. Half precision holds bf16 exactly from 6e-5 upwards; below that the error is at most 3e-8."""

    def __init__(self, stored: Tensor) -> None:
        self._count, self.columns = stored.shape
        self._packed: Any = torch.ops.quantized.linear_prepack_fp16(stored.float(), None)

    def __len__(self) -> int:
        return self._count

    def product(self, x: Tensor) -> Tensor:
        """x T×C, float32; returns T×R."""
        found: Tensor = torch.ops.quantized.linear_dynamic_fp16.default(x, self._packed)
        return found


def has_halves(device: torch.device) -> bool:
    """PyTorch has FBGEMM on x86 processors only."""
    return device.type == "cpu" and "fbgemm" in torch.backends.quantized.supported_engines


def are_halves(rows: Tensor) -> bool:
    """Whether 16 bits hold these float32 numbers, as `HalfRows` does."""
    return bool((rows.half().float() - rows).abs_().max() <= _WORST)


def linear(x: Tensor, weight: Tensor | HalfRows, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b."""
    if isinstance(weight, HalfRows):
        found = weight.product(x)
        return found if bias is None else found.add_(bias)
    return functional.linear(x, weight, bias)
