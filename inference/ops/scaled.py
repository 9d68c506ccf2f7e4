"""Weights in 8 bits: FP8 numbers (E4M3) and one scale for each row.

A scale is the smallest power of two with which the row's largest number fits. So bf16 holds every number
times its scale exactly, and every way to multiply with the rows multiplies the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # of E4M3; conversion makes NaN of larger numbers
ROWS_AT_ONCE = 8192  # limits the memory that conversion takes


@dataclass(frozen=True, slots=True)
class ScaledRows:
    """values R×C (float8_e4m3fn), scales R (float32): row r of the weights is values[r] · scales[r]."""

    values: Tensor
    scales: Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    def floats(self, dtype: torch.dtype) -> Tensor:
        """The rows that the numbers stand for; exact in bf16 and wider types."""
        out = torch.empty(self.values.shape, dtype=dtype, device=self.values.device)
        for at in range(0, len(self), ROWS_AT_ONCE):
            part = slice(at, at + ROWS_AT_ONCE)
            out[part] = self.values[part].float() * self.scales[part, None]
        return out


Rows = Tensor | ScaledRows


def scaled(rows: Tensor) -> ScaledRows:
    """The nearest FP8 numbers of each row, on the rows' device."""
    values = torch.empty(rows.shape, dtype=FP8, device=rows.device)
    scales = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[at : at + ROWS_AT_ONCE].float()
        scale = _scales(part.abs().amax(1))
        scales[at : at + len(part)] = scale
        values[at : at + len(part)] = (part / scale[:, None]).to(FP8)
    return ScaledRows(values, scales)


def _scales(largest: Tensor) -> Tensor:
    """2^k with largest ≤ 448 · 2^k; 1 for a row of zeros. The smallest is 2^-110, far from a float's end."""
    mantissa, exponent = torch.frexp(largest / LARGEST)  # largest / 448 = mantissa · 2^exponent
    exponent = torch.where(mantissa > 0.5, exponent, exponent - 1).clamp(min=-110)
    return torch.where(largest > 0, torch.ldexp(torch.ones_like(largest), exponent), torch.ones_like(largest))


def squares(rows: Tensor, rounded: ScaledRows) -> Tensor:
    """Sums of squares: of what FP8 numbers are off the rows that they replace, and of the rows."""
    sums = torch.zeros(2, device=rows.device)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(at, at + ROWS_AT_ONCE)
        right = rows[part].float()
        wrong = rounded.values[part].float() * rounded.scales[part, None] - right
        sums += torch.stack((wrong.square_().sum(), right.square().sum()))
    return sums


def rounding_error(sums: Tensor) -> float:
    """Of sums that `squares` returns: the error's size in that of the rows."""
    return float((sums[0] / sums[1]).sqrt())
