"""Attention over paged memory for sequences with one query each, split along the keys.

A program takes the query heads of one key head of one sequence, padded to 16 rows, and a part of the keys.
With one part it finishes the softmax itself; with several, `combine` does. The sink joins the denominator at
the end.
"""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous
from inference.ops.kernels.fp8 import widened

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _dot(left, right, PLAIN: tl.constexpr):
    if PLAIN:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    return tl.dot(left.to(right.dtype), right)


@triton.jit
def decode(
    query_ptr, keys_ptr, values_ptr, sinks_ptr, tables_ptr, lengths_ptr, out_ptr, sums_ptr, peaks_ptr,
    weights_ptr, table_width, heads, slot_stride, head_stride, scale,
    WINDOW: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    KEYS: tl.constexpr, SPLITS: tl.constexpr, FIRST: tl.constexpr, PLAIN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """WINDOW 0 means all keys; none before FIRST counts. SPLITS 1 writes `out`; otherwise it writes the sums,
    peaks and weights of sequence × head × split."""
    begin_next(EARLY)
    sequence, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2)
    wait_for_previous(EARLY)
    length = tl.load(lengths_ptr + sequence)
    first = tl.maximum(length - WINDOW, FIRST) if WINDOW > 0 else FIRST
    share = tl.cdiv(tl.cdiv(length - first, SPLITS), KEYS) * KEYS
    begin = first + split * share
    end = tl.minimum(begin + share, length)
    row, dim = tl.arange(0, ROWS), tl.arange(0, SIZE)
    head = kv_head * GROUP + row
    valid = row < GROUP
    at = (sequence * heads + head)[:, None] * SIZE + dim[None, :]
    query = tl.load(query_ptr + at, mask=valid[:, None], other=0.0)
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, SIZE), tl.float32)
    for start in range(begin, end, KEYS):
        position = start + tl.arange(0, KEYS)
        seen = position < end
        block = tl.load(tables_ptr + sequence * table_width + position // BLOCK, mask=seen, other=0)
        place = (block.to(tl.int64) * BLOCK + position % BLOCK) * slot_stride + kv_head * head_stride
        keys = tl.load(keys_ptr + place[None, :] + dim[:, None], mask=seen[None, :], other=0.0)
        scores = _dot(query, widened(keys, query.dtype), PLAIN) * (scale * LOG2_E)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        factor = tl.exp2(peak - higher)
        shares = tl.exp2(scores - higher[:, None])
        weight = weight * factor + tl.sum(shares, 1)
        values = tl.load(values_ptr + place[:, None] + dim[None, :], mask=seen[:, None], other=0.0)
        sums = sums * factor[:, None] + _dot(shares, widened(values, query.dtype), PLAIN)
        peak = higher
    if SPLITS == 1:
        sink = tl.load(sinks_ptr + head, mask=valid, other=0.0).to(tl.float32) * LOG2_E
        higher = tl.maximum(peak, sink)
        factor = tl.exp2(peak - higher)
        result = sums * (factor / (weight * factor + tl.exp2(sink - higher)))[:, None]
        tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=valid[:, None])
    else:
        part = (sequence * heads + head) * SPLITS + split
        tl.store(peaks_ptr + part, peak, mask=valid)
        tl.store(weights_ptr + part, weight, mask=valid)
        if begin < end:
            tl.store(sums_ptr + part[:, None] * SIZE + dim[None, :], sums, mask=valid[:, None])


@triton.jit
def combine(
    sums_ptr, peaks_ptr, weights_ptr, sinks_ptr, out_ptr, heads,
    SIZE: tl.constexpr, SPLITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Each program takes one head of one sequence."""
    begin_next(EARLY)
    head = tl.program_id(1)
    at = tl.program_id(0).to(tl.int64) * heads + head
    split, dim = tl.arange(0, SPLITS), tl.arange(0, SIZE)
    sink = tl.load(sinks_ptr + head).to(tl.float32) * LOG2_E
    wait_for_previous(EARLY)
    peaks = tl.load(peaks_ptr + at * SPLITS + split)
    highest = tl.maximum(tl.max(peaks, 0), sink)
    factors = tl.exp2(peaks - highest)
    total = tl.sum(tl.load(weights_ptr + at * SPLITS + split) * factors, 0) + tl.exp2(sink - highest)
    used = peaks > float("-inf")
    sums = tl.load(
        sums_ptr + (at * SPLITS + split)[:, None] * SIZE + dim[None, :], mask=used[:, None], other=0.0
    )
    result = tl.sum(sums * factors[:, None], 0) / total
    tl.store(out_ptr + at * SIZE + dim, result.to(out_ptr.dtype.element_ty))
