"""The two products of a layer's experts, over pairs of token and expert sorted by expert.

A program takes a tile of weight rows and up to TOKENS pairs of one expert. The first product ends in SwiGLU,
for which a fragment holds eight gate rows above their eight linear rows, so that a lane has both of a pair.
The second writes each pair's result, one part of the columns per split, which `norm.gather` sums in a fixed
order.
"""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous
from inference.ops.kernels.mxfp4 import UNSCALE, product


@triton.jit
def gate_up(
    x_ptr, out_ptr, words_ptr, scales_ptr, bias_ptr, order_ptr, expert_ptr, start_ptr, end_ptr,
    columns, tiles, intermediate, fragments_per_expert, limit, alpha,
    CHOSEN: tl.constexpr, FRAGMENTS: tl.constexpr, TOKENS: tl.constexpr, SHARERS: tl.constexpr,
    UNROLL: tl.constexpr, ALONE: tl.constexpr, PLAIN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """inner[place] = swiglu(W1·x[order[place] // CHOSEN] + b1): pairs × I. ALONE: one token's experts."""
    wait_for_previous(EARLY)
    begin_next(EARLY)  # not before the wait: later launches read what earlier ones have written
    expert = tl.load(expert_ptr + tl.program_id(1)).to(tl.int64)
    if ALONE:
        place = tl.program_id(1) + tl.arange(0, TOKENS)
        present = tl.arange(0, TOKENS) < 1
        token = tl.zeros((TOKENS,), tl.int64)
    else:
        start, end = tl.load(start_ptr + tl.program_id(1)), tl.load(end_ptr + tl.program_id(1))
        if start >= end:
            return
        place = start + tl.arange(0, TOKENS)
        present = place < end
        token = tl.load(order_ptr + place, mask=present, other=0).to(tl.int64) // CHOSEN
    first = expert * fragments_per_expert + tl.program_id(0) * FRAGMENTS
    total = product(
        x_ptr, token * columns, present, columns,
        words_ptr + first * tiles * 128, scales_ptr + first * tiles * 8, 0, tiles, tiles,
        fragments_per_expert - tl.program_id(0) * FRAGMENTS, FRAGMENTS, TOKENS, SHARERS, UNROLL, PLAIN,
    )  # fmt: skip
    halves = tl.permute(tl.reshape(total, (FRAGMENTS, 2, 8, TOKENS)), (0, 2, 3, 1))
    gate, linear = tl.split(halves)
    gate, linear = (
        tl.reshape(gate, (FRAGMENTS * 8, TOKENS)) * UNSCALE,
        tl.reshape(linear, (FRAGMENTS * 8, TOKENS)) * UNSCALE,
    )
    row = tl.program_id(0) * FRAGMENTS * 8 + tl.arange(0, FRAGMENTS * 8)
    inside = row < intermediate
    bias = bias_ptr + expert * 2 * intermediate + 2 * row
    gate += tl.load(bias, mask=inside, other=0.0).to(tl.float32)[:, None]
    linear += tl.load(bias + 1, mask=inside, other=0.0).to(tl.float32)[:, None]
    gate = tl.minimum(gate, limit)
    linear = tl.minimum(tl.maximum(linear, -limit), limit)
    inner = gate / (1.0 + tl.exp(-alpha * gate)) * (linear + 1.0)
    at = place.to(tl.int64)[None, :] * intermediate + row[:, None]
    tl.store(out_ptr + at, inner.to(out_ptr.dtype.element_ty), mask=present[None, :] & inside[:, None])


@triton.jit
def down(
    inner_ptr, out_ptr, words_ptr, scales_ptr, bias_ptr, order_ptr, expert_ptr, start_ptr, end_ptr,
    intermediate, tiles, hidden, pairs, fragments_per_expert,
    SPLITS: tl.constexpr, FRAGMENTS: tl.constexpr, TOKENS: tl.constexpr, SHARERS: tl.constexpr,
    UNROLL: tl.constexpr, ALONE: tl.constexpr, PLAIN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out[split, order[place]] = W2·inner[place] over a split's columns; the first split adds b2. `gate_up`
    lets it start only after the list of experts is written, so it reads the list before the wait."""
    begin_next(EARLY)
    split = tl.program_id(2)
    per_split = tiles // SPLITS
    expert = tl.load(expert_ptr + tl.program_id(1)).to(tl.int64)
    first = expert * fragments_per_expert + tl.program_id(0) * FRAGMENTS
    if ALONE:
        place = tl.program_id(1) + tl.arange(0, TOKENS)
        present = tl.arange(0, TOKENS) < 1
        pair = place.to(tl.int64)
    else:
        start, end = tl.load(start_ptr + tl.program_id(1)), tl.load(end_ptr + tl.program_id(1))
        if start >= end:
            return
        place = start + tl.arange(0, TOKENS)
        present = place < end
        pair = tl.load(order_ptr + place, mask=present, other=0).to(tl.int64)
    wait_for_previous(EARLY)
    total = product(
        inner_ptr, place.to(tl.int64) * intermediate, present, intermediate,
        words_ptr + first * tiles * 128, scales_ptr + first * tiles * 8,
        split * per_split, split * per_split + per_split, tiles,
        fragments_per_expert - tl.program_id(0) * FRAGMENTS, FRAGMENTS, TOKENS, SHARERS, UNROLL, PLAIN,
    )  # fmt: skip
    row = tl.program_id(0) * FRAGMENTS * 16 + tl.arange(0, FRAGMENTS * 16)
    inside = row < hidden
    bias = tl.load(bias_ptr + expert * hidden + row, mask=inside & (split == 0), other=0.0)
    result = total * UNSCALE + bias.to(tl.float32)[:, None]
    at = (split.to(tl.int64) * pairs + pair)[None, :] * hidden + row[:, None]
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=present[None, :] & inside[:, None])
