"""Products with bf16 or FP8 weights for one row or two: each program loads whole weight rows.

A program starts all its loads before it uses the first value, which keeps the memory busy; it then multiplies
each row with the weights in registers. It fuses the same ops as `dense`. SCALED: the weights are FP8, with a
scale for each row.
"""

import triton
import triton.language as tl

from inference.ops.kernels.dense import _rotate_and_write
from inference.ops.kernels.early import as_loaded, begin_next, wait_for_previous


@triton.jit
def _row(x_ptr, norm_ptr, token, columns, eps, HAS_NORM: tl.constexpr, WIDTH: tl.constexpr):
    """One row of x, normalised with HAS_NORM."""
    column = tl.arange(0, WIDTH)
    inside = column < columns
    x = tl.load(x_ptr + token * columns + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = 1.0 / tl.sqrt(tl.sum(x * x) / columns + eps)
        x = x * scale * tl.load(norm_ptr + column, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def project(
    x_ptr, norm_ptr, weight_ptr, scales_ptr, bias_ptr, residual_ptr, out_ptr, columns, rows, eps,
    SCALED: tl.constexpr, HAS_NORM: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = residual + norm(x)·Wᵀ + b, for TOKENS rows of x; WIDTH is the power of two that holds a row."""
    begin_next(EARLY)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = row < rows
    weight = tl.load(
        weight_ptr + row[:, None] * columns + column[None, :],
        mask=inside[:, None] & (column < columns)[None, :],
        other=0.0,
    )
    if SCALED:
        scale = tl.load(scales_ptr + row, mask=inside, other=0.0)
    if HAS_BIAS:
        bias = tl.load(bias_ptr + row, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    for token in tl.static_range(TOKENS):
        x = _row(x_ptr, norm_ptr, token, columns, eps, HAS_NORM, WIDTH)
        total = tl.sum(as_loaded(weight, EARLY).to(tl.float32) * x[None, :], 1)
        if SCALED:
            total *= scale
        if HAS_BIAS:
            total += bias
        if HAS_RESIDUAL:
            total += tl.load(residual_ptr + token * rows + row, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + token * rows + row, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def qkv(
    x_ptr, norm_ptr, weight_ptr, scales_ptr, bias_ptr, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr,
    slots_ptr, hidden, heads, kv_heads, slot_stride, head_stride, eps,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr,
    TOKENS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Writes queries, and keys and values to their slots. A program takes HALF of a head's SIZE / 2 pairs."""
    begin_next(EARLY)
    parts: tl.constexpr = SIZE // (2 * HALF)
    head, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    pair = part * HALF + tl.arange(0, HALF)
    tile = tl.arange(0, 2 * HALF)
    row = head * SIZE + (tile // HALF) * (SIZE // 2) + part * HALF + tile % HALF
    column = tl.arange(0, WIDTH)
    weight = tl.load(
        weight_ptr + row.to(tl.int64)[:, None] * hidden + column[None, :],
        mask=(column < hidden)[None, :],
        other=0.0,
    )
    if SCALED:
        scale = tl.load(scales_ptr + row)
    if HAS_BIAS:
        bias = tl.load(bias_ptr + row).to(tl.float32)
    wait_for_previous(EARLY)
    for token in tl.static_range(TOKENS):
        x = _row(x_ptr, norm_ptr, token, hidden, eps, True, WIDTH)
        total = tl.sum(as_loaded(weight, EARLY).to(tl.float32) * x[None, :], 1)
        if SCALED:
            total *= scale
        if HAS_BIAS:
            total += bias
        low, high = tl.split(tl.permute(tl.reshape(total, (1, 2, HALF)), (0, 2, 1)))
        only = tl.full((1,), token, tl.int64)
        _rotate_and_write(
            low, high, only, only >= 0, head, pair, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr,
            slots_ptr, heads, kv_heads, slot_stride, head_stride, SIZE,
        )  # fmt: skip
