"""Attention over paged memory for sequences with many queries: each program takes one head's tile of queries.

The running maximum starts at the sink, which is one more key without a value. The kernel skips tiles of keys
that no query of the tile may see, and masks none that every query sees.
"""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous
from inference.ops.kernels.fp8 import widened

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _keys(
    sums, peak, weight, query, keys_ptr, values_ptr, table_ptr, slot_stride, position, begin, end,
    least, length, scale, WINDOW: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr,
    MASKED: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """Adds the keys from `begin`, a multiple of KEYS, to `end`; reads none before `least`."""
    dim = tl.arange(0, SIZE)
    for start in range(begin, end, KEYS):
        key = start + tl.arange(0, KEYS)
        if BLOCK % KEYS == 0:
            block = tl.load(table_ptr + start // BLOCK).to(tl.int64)
            slot = block * BLOCK + start % BLOCK + tl.arange(0, KEYS)
        else:
            block = tl.load(table_ptr + key // BLOCK, mask=(key >= least) & (key < length), other=0).to(
                tl.int64
            )
            slot = block * BLOCK + key % BLOCK
        at = slot * slot_stride
        if MASKED:
            # Positions outside the window or past the end may hold NaN, and 0 · NaN is NaN.
            valid = (key >= least) & (key < length)
            keys = tl.load(keys_ptr + at[None, :] + dim[:, None], mask=valid[None, :], other=0.0)
            values = tl.load(values_ptr + at[:, None] + dim[None, :], mask=valid[:, None], other=0.0)
        else:
            keys = tl.load(keys_ptr + at[None, :] + dim[:, None])
            values = tl.load(values_ptr + at[:, None] + dim[None, :])
        keys, values = widened(keys, query.dtype), widened(values, query.dtype)
        if PLAIN:
            scores = tl.dot(query.to(tl.float32), keys.to(tl.float32), input_precision="ieee")
        else:
            scores = tl.dot(query, keys)
        scores *= scale * LOG2_E
        if MASKED:
            seen = key[None, :] <= position[:, None]
            if WINDOW > 0:
                seen = seen & (key[None, :] > position[:, None] - WINDOW)
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        factor = tl.exp2(peak - higher)
        shares = tl.exp2(scores - higher[:, None])
        weight = weight * factor + tl.sum(shares, 1)
        sums = sums * factor[:, None]
        if PLAIN:
            sums += tl.dot(shares, values.to(tl.float32), input_precision="ieee")
        else:
            sums = tl.dot(shares.to(values.dtype), values, sums)
        peak = higher
    return sums, peak, weight


@triton.jit
def prefill(
    query_ptr, keys_ptr, values_ptr, sinks_ptr, tables_ptr, lengths_ptr, starts_ptr, out_ptr,
    table_width, heads, kv_heads, slot_stride, head_stride, decodes, sequences, scale,
    WINDOW: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    SEQUENCES: tl.constexpr, PLAIN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """For the sequences from `decodes` on: at least one program per tile and head. WINDOW 0: all keys."""
    begin_next(EARLY)
    wait_for_previous(EARLY)
    number, head = tl.program_id(0), tl.program_id(1)
    kv_head = (head // (heads // kv_heads)).to(tl.int64)
    keys_ptr += kv_head * head_stride
    values_ptr += kv_head * head_stride
    # Finds the sequence that this tile belongs to.
    every = tl.arange(0, SEQUENCES)
    counted = (every >= decodes) & (every < sequences)
    starts = tl.load(starts_ptr + every, mask=counted, other=0)
    ends = tl.load(starts_ptr + every + 1, mask=counted, other=0)
    tiles = (ends - starts + QUERIES - 1) // QUERIES
    last_tiles = tl.cumsum(tiles, 0)
    sequence = tl.sum(((last_tiles <= number) & (every < sequences)).to(tl.int32), 0)
    if sequence >= sequences:
        return
    own = every == sequence
    tile = number - tl.sum(tl.where(own, last_tiles - tiles, 0), 0)
    start, stop = tl.sum(tl.where(own, starts, 0), 0), tl.sum(tl.where(own, ends, 0), 0)
    length = tl.load(lengths_ptr + sequence)
    row = start + tile * QUERIES + tl.arange(0, QUERIES)
    inside = row < stop
    first = length - (stop - start) + tile * QUERIES  # the first query's position
    position = first + tl.arange(0, QUERIES)
    dim = tl.arange(0, SIZE)
    at = (row.to(tl.int64) * heads + head)[:, None] * SIZE + dim[None, :]
    query = tl.load(query_ptr + at, mask=inside[:, None], other=0.0)
    sink = tl.load(sinks_ptr + head).to(tl.float32) * LOG2_E
    peak = tl.full((QUERIES,), 0.0, tl.float32) + sink
    weight = tl.full((QUERIES,), 1.0, tl.float32)
    sums = tl.zeros((QUERIES, SIZE), tl.float32)
    table_ptr = tables_ptr + sequence.to(tl.int64) * table_width
    end = tl.minimum(first + QUERIES, length)
    least = tl.maximum(first - WINDOW + 1, 0) if WINDOW > 0 else 0
    if WINDOW > 0:
        begin = least // KEYS * KEYS
    else:
        begin = (first + 1) // KEYS * KEYS
        sums, peak, weight = _keys(
            sums, peak, weight, query, keys_ptr, values_ptr, table_ptr, slot_stride, position, 0, begin,
            least, length, scale, WINDOW, SIZE, BLOCK, KEYS, False, PLAIN,
        )  # fmt: skip
    sums, peak, weight = _keys(
        sums, peak, weight, query, keys_ptr, values_ptr, table_ptr, slot_stride, position, begin, end,
        least, length, scale, WINDOW, SIZE, BLOCK, KEYS, True, PLAIN,
    )  # fmt: skip
    result = sums / weight[:, None]
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=inside[:, None])
