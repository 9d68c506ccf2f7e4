"""Launches the products with FP8 weights.

Up to MOST_TOKENS rows, kernels read the weights as they are stored. For more rows the library multiplies,
from floats that exist only for the one product: converting them costs little compared with it.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from torch.nn import functional

from inference.ops import launches
from inference.ops.kernels import scaled as kernels
from inference.ops.launches import PLAIN
from inference.ops.scaled import ScaledRows

MOST_TOKENS = 128
ROWS_AS_FLOATS = 16_384  # of the weights at a time: a whole head would take a gigabyte


def product_parts(
    x: Tensor, weight: ScaledRows, bias: Tensor | None, residual: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """residual + x·Wᵀ + b as parts to be added: float32 if there are several. For up to MOST_TOKENS rows."""
    tokens, columns = x.shape
    rows = len(weight)
    how = launches.of_scaled(tokens, rows)
    held = min(how.columns, triton.next_power_of_2(columns))
    out = torch.empty(
        how.splits, tokens, rows, dtype=torch.float32 if how.splits > 1 else dtype, device=x.device
    )
    kernels.project[(triton.cdiv(rows, how.rows), how.splits)](
        x, weight.values, weight.scales, out if bias is None else bias,
        out if residual is None else residual, out, tokens, columns, rows,
        HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None,
        TOKENS=max(16, triton.next_power_of_2(tokens)), ROWS=how.rows, COLUMNS=held,
        SHARERS=how.warps if how.by_columns else 0, SPLITS=how.splits, PLAIN=PLAIN, num_warps=how.warps,
        num_stages=how.stages, **launches.early("scaled"),
    )  # fmt: skip
    return out


def project(
    x: Tensor, weight: ScaledRows, bias: Tensor | None, residual: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """residual + x·Wᵀ + b, for any number of rows."""
    if len(x) > MOST_TOKENS:
        product = linear(x, weight, bias)
        return (product if residual is None else product + residual).to(dtype)
    parts = product_parts(x, weight, bias, residual, dtype)
    if len(parts) == 1:
        return parts[0]
    out = torch.empty(parts.shape[1:], dtype=dtype, device=x.device)
    kernels.add_parts[(triton.cdiv(out.numel(), 1024),)](
        parts, out, out.numel(), SPLITS=len(parts), WIDTH=1024, num_warps=4, **launches.early("add_parts")
    )
    return out


def linear(x: Tensor, weight: ScaledRows, bias: Tensor | None) -> Tensor:
    """x·Wᵀ + b by the library."""
    parts = []
    for at in range(0, len(weight), ROWS_AS_FLOATS):
        part = slice(at, at + ROWS_AS_FLOATS)
        floats = as_floats(ScaledRows(weight.values[part], weight.scales[part]), x.dtype)
        parts.append(functional.linear(x, floats, None if bias is None else bias[part]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def as_floats(weight: ScaledRows, dtype: torch.dtype) -> Tensor:
    out = torch.empty(weight.values.shape, dtype=dtype, device=weight.values.device)
    width = triton.next_power_of_2(weight.columns)
    kernels.unpack[(len(weight),)](
        weight.values, weight.scales, out, weight.columns, WIDTH=width, num_warps=4,
        **launches.early("unpack"),
    )  # fmt: skip
    return out
