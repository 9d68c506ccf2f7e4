"""Keys and values in paged memory, in plain PyTorch: how a step writes its own and attends to all.

Takes tensors as `pages` describes them, in the shapes of reference.py. Short sequences with one query each
are gathered for one product; all others attend one by one. A broken sequence breaks no other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inference.ops.pages import Gathered, Pages, Span
from inference.ops.scaled import FP8, LARGEST

# The scores that attention holds: 2^23 floats are 32 MiB, and a long prompt allocates no T·L per head.
MAX_SCORES = 1 << 23


def write_kv(keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor, pages: Pages) -> None:
    """Writes T×K×D keys and values, in the blocks' type, to the slots of `pages`; padding to block 0."""
    for blocks, new in ((keys, new_keys), (values, new_values)):
        places, rows = by_head(blocks), new.transpose(0, 1)
        if blocks.dtype == FP8:  # index_copy_ knows no FP8
            places, rows = places.view(torch.uint8), fp8(rows).view(torch.uint8)
        places.index_copy_(1, pages.slots, rows)


def fp8(values: Tensor) -> Tensor:
    """The nearest FP8 numbers; larger ones than the largest become the largest."""
    return values.clamp(-LARGEST, LARGEST).to(FP8)


def by_head(blocks: Tensor) -> Tensor:
    """A view of the blocks as K × blocks·size × D."""
    return blocks.permute(2, 0, 1, 3).flatten(1, 2)


def paged_attention(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, pages: Pages) -> Tensor:
    """Grouped-query attention over paged memory, which already holds the step's own keys and values.

    query is T×N×D, keys and values blocks×size×K×D in any type, sinks N; returns T × N·D. A query of position
    p sees positions 0 to p, on layers with a window the last `window` of these. A sink is one more logit per
    head, in the denominator only. The results of padding rows (of length 0) are undefined.
    """
    keys, values = by_head(keys), by_head(values)
    parts = [
        _attend_gathered(query[part.start : part.end], keys, values, sinks, part)
        if isinstance(part, Gathered)
        else _attend_span(query[part.start : part.end], keys, values, sinks, pages, part)
        for part in pages.parts
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend_gathered(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, group: Gathered) -> Tensor:
    """One product for B sequences with one query each, B×N×D to B × N·D."""
    count, heads, size = query.shape
    kv_heads = len(keys)
    seen = (_taken(places, group.places, query.dtype) for places in (keys, values))
    seen_keys, seen_values = (taken.view(kv_heads * count, -1, size) for taken in seen)
    grouped = (query * size**-0.5).view(count, kv_heads, -1, size).transpose(0, 1).flatten(0, 1)
    scores = torch.bmm(grouped, seen_keys.transpose(1, 2)).view(kv_heads, count, heads // kv_heads, -1)
    scores += group.hiding
    sink = sinks.view(kv_heads, 1, -1, 1).expand(-1, count, -1, -1)
    weights = _softmax(torch.cat((scores, sink), -1), query.dtype)[..., :-1]
    out = torch.bmm(weights.flatten(0, 1), seen_values).view(kv_heads, count, -1, size)
    return out.transpose(0, 1).reshape(count, heads * size)


def _softmax(scores: Tensor, dtype: torch.dtype) -> Tensor:
    weights = torch.softmax(scores, -1, dtype=torch.float32)
    return weights if dtype == torch.float32 else weights.to(dtype)


def _attend_span(
    query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, pages: Pages, span: Span
) -> Tensor:
    seen_keys, seen_values = (_seen(places, span, pages.block_size, query.dtype) for places in (keys, values))
    if span.queries == 1:
        return _attend_alone(query, seen_keys, seen_values, sinks)
    positions = torch.arange(span.first, span.length, device=query.device)
    return attention(
        query, seen_keys, seen_values, sinks, positions[-span.queries :], positions, pages.window
    )


def _taken(places: Tensor, numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbered places, along the second dimension, in `dtype`."""
    if places.dtype == FP8:  # index_select knows no FP8
        return places.view(torch.uint8).index_select(1, numbers).view(FP8).to(dtype)
    taken = places.index_select(1, numbers)
    return taken if taken.dtype == dtype else taken.to(dtype)


def _seen(places: Tensor, span: Span, size: int, dtype: torch.dtype) -> Tensor:
    """The K×L×D that a span's queries see, in `dtype`: a view if blocks in order need no conversion."""
    begin, length = span.first % size, span.length - span.first
    if span.run and span.blocks:
        seen = places.narrow(1, span.blocks[0] * size + begin, length)
        return seen if seen.dtype == dtype else seen.to(dtype)
    numbers = torch.tensor(span.blocks, dtype=torch.int64, device=places.device)
    seen = _taken(places.view(len(places), -1, size, places.shape[2]), numbers, dtype)
    return seen.flatten(1, 2)[:, begin : begin + length]


def _attend_alone(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor) -> Tensor:
    """Attention of one query, 1×N×D, to all of K×L×D; returns 1 × N·D."""
    grouped = (query * query.shape[-1] ** -0.5).view(len(keys), -1, query.shape[-1])
    scores = torch.bmm(grouped, keys.transpose(1, 2))
    weights = _softmax(torch.cat((scores, sinks.view(len(keys), -1, 1)), -1), query.dtype)
    return torch.bmm(weights[..., :-1], values).view(1, -1)


def attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    sinks: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    window: int | None,
) -> Tensor:
    """Attention of one sequence over contiguous keys. query is T×N×D, keys and values K×L×D, sinks N; returns
    T×N·D. A query sees the keys up to its own position and within the window."""
    count, heads, size = query.shape
    grouped = query.view(count, keys.shape[0], -1, size).permute(1, 2, 0, 3)  # K × N/K × T × D
    sink = sinks.view(keys.shape[0], -1, 1, 1).to(query.dtype)
    rows = max(1, MAX_SCORES // (heads * keys.shape[1]))
    parts = []
    for at in range(0, count, rows):
        hidden = hidden_keys(query_positions[at : at + rows], key_positions, window)
        parts.append(_attend(grouped[:, :, at : at + rows], keys, values, sink, hidden))
    out = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
    return out.permute(2, 0, 1, 3).reshape(count, heads * size)


def hidden_keys(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """T × L: true where the query must not see the key."""
    queries, keys = query_positions.unsqueeze(1), key_positions.unsqueeze(0)
    hidden = keys > queries
    return hidden if window is None else hidden | (keys <= queries - window)


def _attend(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor, hidden: Tensor) -> Tensor:
    kv_heads, group, count, size = query.shape
    flat = query.reshape(kv_heads, group * count, size) * size**-0.5
    scores = torch.bmm(flat, keys.transpose(1, 2)).view(kv_heads, group, count, -1)
    scores = scores.masked_fill_(hidden, -math.inf)
    scores = torch.cat((scores, sink.expand(-1, -1, count, -1)), -1)
    weights = _softmax(scores, query.dtype)
    out = torch.bmm(weights[..., :-1].reshape(kv_heads, group * count, -1), values)
    return out.view(kv_heads, group, count, size)
