"""Weights in 16 bits for products on a CPU, in the order in which FBGEMM reads and widens them.

A step of a few rows reads every weight once and waits for memory, so half the bytes are half the time; with
256 rows the time is that of floats. It must not know what the weights belong to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_HALF = 65_504.0
_WORST = 2.0**-25  # half of the smallest half: bf16 numbers from 6e-5 upwards are exact
# Rows packed together. FBGEMM packs column by column: more rows leave the processor's cache between two
# columns, and packing takes longer (of 201,088 × 320, with 65,536 twice as long). With fewer, each product is
# slower (with 4,096 by a sixth).
ROWS_AT_ONCE = 16_384


class HalfRows:
    """Rows R×C. Half precision holds bf16 exactly from 6e-5 upwards; below that the error is at most 3e-8."""

    def __init__(self, stored: Tensor) -> None:
        wide = torch.empty(min(ROWS_AT_ONCE, len(stored)), stored.shape[1])  # one buffer for all parts
        self._count = len(stored)
        self._packed: list[Any] = [
            torch.ops.quantized.linear_prepack_fp16(wide[: len(part)].copy_(part), None)
            for part in torch.split(stored, ROWS_AT_ONCE)
        ]

    def __len__(self) -> int:
        return self._count

    def product(self, x: Tensor) -> Tensor:
        """x T×C, float32; returns T×R."""
        times = torch.ops.quantized.linear_dynamic_fp16.default
        if len(self._packed) == 1:
            only: Tensor = times(x, self._packed[0])
            return only
        out, end = x.new_empty(len(x), self._count), 0
        for part in self._packed:  # one at a time: all of them and their sum would be twice the memory
            some = times(x, part)
            begin, end = end, end + some.shape[1]
            out[:, begin:end] = some
        return out


Matrix = Tensor | HalfRows  # weights of a product, in either form


def has_halves(device: torch.device) -> bool:
    """PyTorch has FBGEMM on x86 processors only."""
    return device.type == "cpu" and "fbgemm" in torch.backends.quantized.supported_engines


def are_halves(rows: Tensor) -> bool:
    """Whether 16 bits hold these float32 numbers, as `HalfRows` does."""
    return bool((rows.half().float() - rows).abs_().max() <= _WORST)


def halves_where_exact(rows: Tensor) -> Matrix:
    """The same rows in 16 bits if that loses nothing and PyTorch can multiply by them."""
    exact = rows.dtype == torch.float32 and has_halves(rows.device) and are_halves(rows)
    return HalfRows(rows) if exact else rows


def linear(x: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b."""
    if isinstance(weight, HalfRows):
        out = weight.product(x)
        return out if bias is None else out.add_(bias)
    return functional.linear(x, weight, bias)
