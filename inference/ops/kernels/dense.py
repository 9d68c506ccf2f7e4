"""Products with plain weights for few rows, where reading the weights takes most of the time.

A program reads a tile of the weights once and multiplies it with all rows. It fuses the ops around the
product while its numbers are in registers: RMSNorm before it; bias, rotation and the write to paged memory,
or bias and residual, after it. For many rows the library multiplies instead, and `rotate_and_write` follows.
"""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous
from inference.ops.kernels.fp8 import stored, widened


@triton.jit
def _dot(x, weight, total, PLAIN: tl.constexpr):
    if PLAIN:
        return total + tl.dot(x.to(tl.float32), weight.to(tl.float32), input_precision="ieee")
    weight = widened(weight, tl.bfloat16)
    return tl.dot(x.to(weight.dtype), weight, total)


@triton.jit
def project(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr, tokens, columns, rows,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, PLAIN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = residual + x·Wᵀ + b; x is tokens × columns, W rows × columns."""
    begin_next(EARLY)
    token = tl.arange(0, TOKENS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here, inside = token < tokens, row < rows
    wait_for_previous(EARLY)
    total = tl.zeros((TOKENS, ROWS), tl.float32)
    for first in range(0, columns, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        within = column < columns
        x = tl.load(
            x_ptr + token[:, None] * columns + column[None, :],
            mask=here[:, None] & within[None, :],
            other=0.0,
        )
        weight = tl.load(
            weight_ptr + row[None, :] * columns + column[:, None],
            mask=inside[None, :] & within[:, None],
            other=0.0,
        )
        total = _dot(x, weight, total, PLAIN)
    if HAS_BIAS:
        total += tl.load(bias_ptr + row, mask=inside, other=0.0).to(tl.float32)[None, :]
    at = token.to(tl.int64)[:, None] * rows + row[None, :]
    whole = here[:, None] & inside[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual_ptr + at, mask=whole, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=whole)


@triton.jit
def _normed_product(
    x_ptr, norm_ptr, weight_ptr, row, token, here, hidden, eps, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, SHARERS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """norm(x)·Wᵀ in one pass over x: the root mean square is a factor of the whole row. In each turn, each of
    SHARERS warps takes all rows and COLUMNS columns of its own. Their sums are added last."""
    total = tl.zeros((SHARERS, TOKENS, ROWS), tl.float32)
    squares = tl.zeros((SHARERS, TOKENS, COLUMNS), tl.float32)
    own = tl.arange(0, SHARERS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    for first in range(0, hidden, SHARERS * COLUMNS):
        column = first + own
        within = column < hidden
        x = tl.load(
            x_ptr + token[None, :, None] * hidden + column[:, None, :],
            mask=here[None, :, None] & within[:, None, :],
            other=0.0,
        ).to(tl.float32)
        squares += x * x
        x = x * tl.load(norm_ptr + column, mask=within, other=0.0).to(tl.float32)[:, None, :]
        weight = tl.load(
            weight_ptr + row[None, None, :] * hidden + column[:, :, None], mask=within[:, :, None], other=0.0
        )
        total = _dot(x, weight, total, PLAIN)
    scale = 1.0 / tl.sqrt(tl.sum(tl.sum(squares, 2), 0) / hidden + eps)
    return tl.sum(total, 0) * scale[:, None]


@triton.jit
def qkv(
    x_ptr, norm_ptr, weight_ptr, scales_ptr, bias_ptr, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr,
    slots_ptr, tokens, hidden, heads, kv_heads, slot_stride, head_stride, eps,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr, SHARERS: tl.constexpr, PLAIN: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Writes queries, and keys and values to their slots. A program takes HALF of a head's SIZE / 2 pairs.
    SCALED: the weights are FP8, with a scale for each row."""
    begin_next(EARLY)
    token = tl.arange(0, TOKENS)
    here = token < tokens
    parts: tl.constexpr = SIZE // (2 * HALF)
    head = tl.program_id(0) // parts
    pair = (tl.program_id(0) % parts) * HALF + tl.arange(0, HALF)
    tile = tl.arange(0, 2 * HALF)
    row = head * SIZE + (tile // HALF) * (SIZE // 2) + (tl.program_id(0) % parts) * HALF + tile % HALF
    wait_for_previous(EARLY)
    total = _normed_product(
        x_ptr, norm_ptr, weight_ptr, row.to(tl.int64), token, here, hidden, eps,
        TOKENS, 2 * HALF, COLUMNS, SHARERS, PLAIN,
    )  # fmt: skip
    if SCALED:
        total *= tl.load(scales_ptr + row)[None, :]
    if HAS_BIAS:
        total += tl.load(bias_ptr + row).to(tl.float32)[None, :]
    low, high = tl.split(tl.permute(tl.reshape(total, (TOKENS, 2, HALF)), (0, 2, 1)))
    _rotate_and_write(
        low, high, token.to(tl.int64), here, head, pair, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr,
        slots_ptr, heads, kv_heads, slot_stride, head_stride, SIZE,
    )  # fmt: skip


@triton.jit
def _rotate_and_write(
    low, high, token, here, head, pair, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr, slots_ptr,
    heads, kv_heads, slot_stride, head_stride, SIZE: tl.constexpr,
):  # fmt: skip
    """low and high, tokens × pairs of one head, hold the two numbers of each pair."""
    whole = here[:, None]
    if head < heads + kv_heads:
        at = token[:, None] * SIZE + pair[None, :]
        cos, cos_high = tl.load(cos_ptr + at, mask=whole), tl.load(cos_ptr + at + SIZE // 2, mask=whole)
        sin, sin_high = tl.load(sin_ptr + at, mask=whole), tl.load(sin_ptr + at + SIZE // 2, mask=whole)
        low, high = low * cos + high * sin, high * cos_high + low * sin_high
    if head < heads:
        target = query_ptr + (token[:, None] * heads + head) * SIZE + pair[None, :]
        tl.store(target, low.to(query_ptr.dtype.element_ty), mask=whole)
        tl.store(target + SIZE // 2, high.to(query_ptr.dtype.element_ty), mask=whole)
    else:
        slot = tl.load(slots_ptr + token, mask=here, other=0)
        kv_head = ((head - heads) % kv_heads).to(tl.int64)
        at = slot[:, None] * slot_stride + kv_head * head_stride + pair[None, :]
        if head < heads + kv_heads:
            tl.store(keys_ptr + at, stored(low, keys_ptr.dtype.element_ty), mask=whole)
            tl.store(keys_ptr + at + SIZE // 2, stored(high, keys_ptr.dtype.element_ty), mask=whole)
        else:
            tl.store(values_ptr + at, stored(low, values_ptr.dtype.element_ty), mask=whole)
            tl.store(values_ptr + at + SIZE // 2, stored(high, values_ptr.dtype.element_ty), mask=whole)


@triton.jit
def rotate_and_write(
    projected_ptr, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr, slots_ptr, tokens, heads, kv_heads,
    slot_stride, head_stride, SIZE: tl.constexpr, TOKENS: tl.constexpr, SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """As `qkv`, for finished products, the sum of SPLITS parts of tokens × (N + 2K)·D. A program takes TOKENS
    rows of one head."""
    begin_next(EARLY)
    wait_for_previous(EARLY)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    here = token < tokens
    head = tl.program_id(1)
    pair = tl.arange(0, SIZE // 2)
    at = (token[:, None] * (heads + 2 * kv_heads) + head) * SIZE + pair[None, :]
    low = tl.load(projected_ptr + at, mask=here[:, None], other=0.0).to(tl.float32)
    high = tl.load(projected_ptr + at + SIZE // 2, mask=here[:, None], other=0.0).to(tl.float32)
    for split in tl.static_range(1, SPLITS):
        part = at + split * (tokens.to(tl.int64) * (heads + 2 * kv_heads) * SIZE)
        low += tl.load(projected_ptr + part, mask=here[:, None], other=0.0).to(tl.float32)
        high += tl.load(projected_ptr + part + SIZE // 2, mask=here[:, None], other=0.0).to(tl.float32)
    _rotate_and_write(
        low, high, token, here, head, pair, cos_ptr, sin_ptr, query_ptr, keys_ptr, values_ptr, slots_ptr,
        heads, kv_heads, slot_stride, head_stride, SIZE,
    )  # fmt: skip
