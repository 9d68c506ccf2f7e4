"""Products with FP8 weights for 3 to 128 rows, and the weights as floats for more.

The weights are the left operand of each product, so that they pass from FP8 to the type of x in registers.
A row's scale multiplies its finished sum.
"""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous
from inference.ops.kernels.fp8 import widened


@triton.jit
def _dot(weight, x, total, PLAIN: tl.constexpr):
    if PLAIN:
        return total + tl.dot(weight.to(tl.float32), x.to(tl.float32), input_precision="ieee")
    return tl.dot(widened(weight, x.dtype), x, total)


@triton.jit
def _together(
    x_ptr, weight_ptr, row, token, inside, here, columns, begin, end, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """W·xᵀ, ROWS × TOKENS, over the columns from `begin` to `end`: warps divide the rows."""
    total = tl.zeros((ROWS, TOKENS), tl.float32)
    for first in range(begin, end, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        within = column < columns
        weight = tl.load(
            weight_ptr + row[:, None] * columns + column[None, :],
            mask=inside[:, None] & within[None, :],
            other=0.0,
        )
        x = tl.load(
            x_ptr + token[None, :] * columns + column[:, None],
            mask=here[None, :] & within[:, None],
            other=0.0,
        )
        total = _dot(weight, x, total, PLAIN)
    return total


@triton.jit
def _by_columns(
    x_ptr, weight_ptr, row, token, inside, here, columns, begin, end, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SHARERS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """As `_together`; in each turn, each of SHARERS warps takes all rows and COLUMNS columns of its own."""
    total = tl.zeros((SHARERS, ROWS, TOKENS), tl.float32)
    own = tl.arange(0, SHARERS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    for first in range(begin, end, SHARERS * COLUMNS):
        column = first + own
        within = column < columns
        weight = tl.load(
            weight_ptr + row[None, :, None] * columns + column[:, None, :],
            mask=inside[None, :, None] & within[:, None, :],
            other=0.0,
        )
        x = tl.load(
            x_ptr + token[None, None, :] * columns + column[:, :, None],
            mask=here[None, None, :] & within[:, :, None],
            other=0.0,
        )
        total = _dot(weight, x, total, PLAIN)
    return tl.sum(total, 0)


@triton.jit
def project(
    x_ptr, weight_ptr, scales_ptr, bias_ptr, residual_ptr, out_ptr, tokens, columns, rows,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, SHARERS: tl.constexpr, SPLITS: tl.constexpr, PLAIN: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """out = residual + x·Wᵀ + b; x is tokens × columns, W rows × columns.

    A program takes ROWS rows and one of SPLITS parts of the columns, and writes to that part of `out`, SPLITS
    × tokens × rows. The first part has bias and residual; `add_parts` adds them all.
    """
    begin_next(EARLY)
    token = tl.arange(0, TOKENS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    split = tl.program_id(1)
    here, inside = token < tokens, row < rows
    turn: tl.constexpr = COLUMNS * SHARERS if SHARERS > 0 else COLUMNS
    share = tl.cdiv(tl.cdiv(columns, turn), SPLITS) * turn
    begin = split * share
    end = tl.minimum(begin + share, columns)
    scale = tl.load(scales_ptr + row, mask=inside, other=0.0)
    wait_for_previous(EARLY)
    if SHARERS > 0:
        total = _by_columns(
            x_ptr, weight_ptr, row, token, inside, here, columns, begin, end, TOKENS, ROWS, COLUMNS, SHARERS,
            PLAIN,
        )  # fmt: skip
    else:
        total = _together(
            x_ptr, weight_ptr, row, token, inside, here, columns, begin, end, TOKENS, ROWS, COLUMNS, PLAIN
        )
    total *= scale[:, None]
    whole = inside[:, None] & here[None, :]
    at = token.to(tl.int64)[None, :] * rows + row[:, None]
    if split == 0:
        if HAS_BIAS:
            total += tl.load(bias_ptr + row, mask=inside, other=0.0).to(tl.float32)[:, None]
        if HAS_RESIDUAL:
            total += tl.load(residual_ptr + at, mask=whole, other=0.0).to(tl.float32)
    at += split.to(tl.int64) * tokens * rows
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=whole)


@triton.jit
def add_parts(
    parts_ptr, out_ptr, count, SPLITS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    """out (of `count` numbers) is the sum of SPLITS parts."""
    begin_next(EARLY)
    wait_for_previous(EARLY)
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    inside = at < count
    total = tl.zeros((WIDTH,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts_ptr + split * count + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def unpack(
    weight_ptr, scales_ptr, out_ptr, columns, WIDTH: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    """One row as floats, its scale included."""
    begin_next(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < columns
    values = tl.load(weight_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    values = (values * tl.load(scales_ptr + row)).to(out_ptr.dtype.element_ty)
    wait_for_previous(EARLY)
    tl.store(out_ptr + row * columns + column, values, mask=inside)
