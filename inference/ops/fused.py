"""The ops of `reference` as kernels for a GPU: the same names, arguments and results.

No op waits for the device, and shapes alone decide which kernel runs, so that a step of one shape can be
recorded and replayed. Sums are taken in a fixed order: the same rows in a batch of the same shape give the
same bits.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
from torch import Tensor
from torch.nn import functional

from inference.ops import launches, scaled_products
from inference.ops.expert_kernels import Mixture
from inference.ops.kernels import attention_decode, attention_prefill, dense, norm, router, sampling, vector
from inference.ops.launches import PLAIN
from inference.ops.pages import Pages
from inference.ops.reference import MixtureWeights
from inference.ops.sampling import Picking
from inference.ops.scaled import Rows, ScaledRows

VECTOR_TOKENS = 2  # up to this many rows, a program reads whole weight rows
SKINNY_TOKENS = 16  # up to this many rows, kernels of this package multiply; above, the library does
ROUTED_TOKENS = 128  # up to this many rows, one launch normalises and routes
PROGRAMS = 256  # fills a large GPU about twice
CHUNK = 4096  # logits of a program that surveys them


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    width = triton.next_power_of_2(x.shape[-1])
    warps, early = max(1, min(8, width // 256)), launches.early("rms_norm")
    norm.rms_norm[(len(x),)](x, weight, out, x.shape[-1], eps, WIDTH=width, num_warps=warps, **early)
    return out


def qkv(
    x: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Rows,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    keys: Tensor,
    values: Tensor,
    pages: Pages,
) -> Tensor:
    kv_heads, size = keys.shape[2:]
    tokens, hidden = x.shape
    heads = len(weight) // size - 2 * kv_heads
    query = torch.empty(tokens, heads, size, dtype=x.dtype, device=x.device)
    after = (cos, sin, query, keys, values, pages.slots)
    if tokens > SKINNY_TOKENS:
        _rotate_and_write(_parts(rms_norm(x, norm_weight, eps), weight, bias), heads, *after)
        return query
    values_of_rows, scales, is_scaled = _stored(weight)
    arguments = (x, norm_weight, values_of_rows, scales, scales if bias is None else bias, *after)
    if tokens <= VECTOR_TOKENS:
        single = launches.SCALED_QKV_WHOLE if is_scaled else launches.QKV_WHOLE
        width, half = triton.next_power_of_2(hidden), min(single.half, size // 2)
        vector.qkv[(len(weight) // (2 * half),)](
            *arguments, hidden, heads, kv_heads, *memory_strides(keys, values), eps,
            SCALED=is_scaled, HAS_BIAS=bias is not None, SIZE=size, HALF=half, TOKENS=tokens, WIDTH=width,
            num_warps=single.warps, **launches.early("qkv"),
        )  # fmt: skip
    else:
        how = launches.SCALED_QKV if is_scaled else launches.QKV
        half = min(how.half, size // 2)
        dense.qkv[(len(weight) // (2 * half),)](
            *arguments, tokens, hidden, heads, kv_heads, *memory_strides(keys, values), eps,
            SCALED=is_scaled, HAS_BIAS=bias is not None, SIZE=size, HALF=half, TOKENS=16,
            COLUMNS=columns_per_turn(hidden, how.columns), SHARERS=how.warps, PLAIN=PLAIN,
            num_warps=how.warps, num_stages=how.stages, **launches.early("qkv"),
        )  # fmt: skip
    return query


def rotate_and_write(
    projected: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, pages: Pages
) -> Tensor:
    kv_heads, size = keys.shape[2:]
    heads = projected.shape[1] // size - 2 * kv_heads
    query = torch.empty(len(projected), heads, size, dtype=projected.dtype, device=projected.device)
    _rotate_and_write(projected.unsqueeze(0), heads, cos, sin, query, keys, values, pages.slots)
    return query


def _rotate_and_write(parts: Tensor, heads: int, *places: Tensor) -> None:
    """`parts`: P × T × (N+2K)·D, to be added. `places`: cos, sin, query, keys, values and slots."""
    keys, values = places[3:5]
    tokens, (kv_heads, size) = parts.shape[1], keys.shape[2:]
    dense.rotate_and_write[(triton.cdiv(tokens, 16), heads + 2 * kv_heads)](
        parts, *places, tokens, heads, kv_heads, *memory_strides(keys, values),
        SIZE=size, TOKENS=16, SPLITS=len(parts), num_warps=1, **launches.early("rotate"),
    )  # fmt: skip


def _parts(x: Tensor, weight: Rows, bias: Tensor | None) -> Tensor:
    """x·Wᵀ + b as parts to be added, P × T × R."""
    if not isinstance(weight, ScaledRows):
        return functional.linear(x, weight, bias).unsqueeze(0)
    if len(x) > scaled_products.MOST_TOKENS:
        return scaled_products.linear(x, weight, bias).unsqueeze(0)
    return scaled_products.product_parts(x, weight, bias, None, x.dtype)


def _stored(weight: Rows) -> tuple[Tensor, Tensor, bool]:
    """The rows as stored, their scales (if none, any tensor), and whether they have scales."""
    if isinstance(weight, ScaledRows):
        return weight.values, weight.scales, True
    return weight, weight, False


def project_out(attended: Tensor, weight: Rows, bias: Tensor | None, residual: Tensor) -> Tensor:
    if len(attended) <= VECTOR_TOKENS:
        return _project_whole(attended, weight, bias, residual, None, 0.0, residual.dtype)
    if isinstance(weight, ScaledRows):
        return scaled_products.project(attended, weight, bias, residual, residual.dtype)
    if len(attended) > SKINNY_TOKENS:
        return functional.linear(attended, weight, bias) + residual
    return _project(attended, weight, bias, residual, residual.dtype)


def head_logits(x: Tensor, norm_weight: Tensor, eps: float, head: Rows) -> Tensor:
    rows = head if isinstance(head, ScaledRows) else head.t()
    if len(x) <= VECTOR_TOKENS:
        return _project_whole(x, rows, None, None, norm_weight, eps, torch.float32)
    normed = rms_norm(x, norm_weight, eps)
    if isinstance(rows, ScaledRows):
        return scaled_products.project(normed, rows, None, None, torch.float32)
    if len(x) > SKINNY_TOKENS:
        return functional.linear(normed, rows).float()
    return _project(normed, rows, None, None, torch.float32)


def _project_whole(
    x: Tensor,
    weight: Rows,
    bias: Tensor | None,
    residual: Tensor | None,
    norm_weight: Tensor | None,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """For up to VECTOR_TOKENS rows, normalised first with `norm_weight`."""
    stored, scales, is_scaled = _stored(weight)
    assert stored.is_contiguous(), "a weight's rows must be contiguous"
    tokens, columns = x.shape
    rows = len(stored)
    out = torch.empty(tokens, rows, dtype=dtype, device=x.device)
    if norm_weight is None:
        how = launches.SCALED_OUT_WHOLE if is_scaled else launches.OUT_WHOLE
    else:
        how = launches.SCALED_HEAD_WHOLE if is_scaled else launches.HEAD_WHOLE
    vector.project[(triton.cdiv(rows, how.rows),)](
        x, scales if norm_weight is None else norm_weight, stored, scales, scales if bias is None else bias,
        out if residual is None else residual, out, columns, rows, eps,
        SCALED=is_scaled, HAS_NORM=norm_weight is not None, HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None, TOKENS=tokens, ROWS=how.rows,
        WIDTH=triton.next_power_of_2(columns), num_warps=how.warps,
        **launches.early("out" if norm_weight is None else "head"),
    )  # fmt: skip
    return out


def _project(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """For up to SKINNY_TOKENS rows."""
    assert weight.is_contiguous(), "a weight's rows must be contiguous"
    tokens, columns = x.shape
    rows = len(weight)
    out = torch.empty(tokens, rows, dtype=dtype, device=x.device)
    tile = 64 if rows > 16 * PROGRAMS * 4 else 16
    dense.project[(triton.cdiv(rows, tile),)](
        x, weight, weight if bias is None else bias, out if residual is None else residual, out,
        tokens, columns, rows,
        HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None, TOKENS=16, ROWS=tile,
        COLUMNS=columns_per_turn(columns), PLAIN=PLAIN, num_warps=4 if tile > 16 else 2, num_stages=4,
        **launches.early("out"),
    )  # fmt: skip
    return out


def paged_attention(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, pages: Pages) -> Tensor:
    tokens, heads, size = query.shape
    out = torch.empty(tokens, heads * size, dtype=query.dtype, device=query.device)
    if pages.decodes:
        _decode(query, keys, values, sinks, pages, out)
    if len(pages.lengths) > pages.decodes:
        _prefill(query, keys, values, sinks, pages, out)
    return out


def _decode(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, pages: Pages, out: Tensor) -> None:
    heads, size = query.shape[1:]
    kv_heads, count = keys.shape[2], pages.decodes
    group = heads // kv_heads
    splits = key_splits(count * kv_heads, pages.window)
    parts = torch.empty(count, heads, splits, size + 2, dtype=torch.float32, device=query.device)
    pieces = parts.numel() // (size + 2)
    sums, peaks, weights = torch.split_with_sizes(parts.view(-1), [pieces * size, pieces, pieces])
    attention_decode.decode[(count, kv_heads, splits)](
        query, keys, values, sinks, pages.tables, pages.lengths, out, sums, peaks, weights,
        pages.tables.stride(0), heads, *memory_strides(keys, values), size**-0.5,
        WINDOW=pages.window or 0, GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), SIZE=size,
        BLOCK=pages.block_size, KEYS=64, SPLITS=splits, FIRST=pages.first, PLAIN=PLAIN, num_warps=4,
        num_stages=3,
        **launches.early("decode"),
    )  # fmt: skip
    if splits > 1:
        attention_decode.combine[(count, heads)](
            sums, peaks, weights, sinks, out, heads,
            SIZE=size, SPLITS=splits, num_warps=2, **launches.early("combine"),
        )  # fmt: skip


def memory_strides(keys: Tensor, values: Tensor) -> tuple[int, int]:
    """The distance from slot to slot, across blocks too, and from head to head."""
    blocks, slots, heads, dims = keys.stride()
    assert keys.stride() == values.stride(), "keys and values must have the same strides"
    assert (blocks, dims) == (keys.shape[1] * slots, 1), "blocks must follow each other in memory"
    return slots, heads


def key_splits(programs: int, window: int | None) -> int:
    """Into how many parts keys are split, by programs: a recorded step does not know how many keys."""
    if window is not None and window <= 256:
        return 1
    return next(splits for splits in (1, 2, 4, 8, 16, 32) if splits == 32 or programs * splits >= PROGRAMS)


def _prefill(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, pages: Pages, out: Tensor) -> None:
    tokens, heads, size = query.shape
    sequences = len(pages.lengths)
    queries = 16 if PLAIN else 128 if pages.longest > 64 else 64
    tiles = (tokens - pages.decodes) // queries + sequences - pages.decodes
    attention_prefill.prefill[(tiles, heads)](
        query, keys, values, sinks, pages.tables, pages.lengths, pages.starts, out,
        pages.tables.stride(0), heads, keys.shape[2], *memory_strides(keys, values), pages.decodes, sequences,
        size**-0.5,
        WINDOW=pages.window or 0, SIZE=size, BLOCK=pages.block_size, QUERIES=queries,
        KEYS=16 if PLAIN else 64, SEQUENCES=triton.next_power_of_2(sequences), PLAIN=PLAIN,
        num_warps=8 if queries == 128 else 4, num_stages=3, **launches.early("prefill"),
    )  # fmt: skip


def experts_block(
    x: Tensor,
    norm_weight: Tensor,
    eps: float,
    router_weight: Tensor,
    router_bias: Tensor,
    experts_per_token: int,
    experts: MixtureWeights,
) -> Tensor:
    normed, chosen, shares = norm_and_route(
        x, norm_weight, eps, router_weight, router_bias, experts_per_token
    )
    if isinstance(experts, Mixture):
        return experts.added_to(x, normed, chosen, shares)
    return x + experts.forward(normed, chosen, shares.to(x.dtype))


def norm_and_route(
    x: Tensor, norm_weight: Tensor, eps: float, weight: Tensor, bias: Tensor, experts_per_token: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the normalised rows, their experts (best first) and the shares of these experts."""
    tokens, hidden = x.shape
    if tokens > ROUTED_TOKENS:
        normed = rms_norm(x, norm_weight, eps)
        return (normed, *route(normed, weight, bias, experts_per_token))
    experts = len(weight)
    normed = torch.empty_like(x)
    chosen, shares = _choices(x, experts_per_token)
    logits = torch.empty(tokens, experts, dtype=torch.float32, device=x.device)
    width, how = triton.next_power_of_2(hidden), launches.of_routes(tokens)
    router.norm_and_route[(tokens, triton.cdiv(experts, how.part))](
        x, norm_weight, weight, bias, normed, logits, _counters(x.device), chosen, shares,
        hidden, experts, eps,
        **_choice_sizes(experts, experts_per_token), PART=how.part, WIDTH=width,
        COLUMNS=min(width, how.columns), num_warps=how.warps if width >= 2048 else 4,
        **launches.early("route"),
    )  # fmt: skip
    return normed, chosen, shares


def route(x: Tensor, weight: Tensor, bias: Tensor, experts_per_token: int) -> tuple[Tensor, Tensor]:
    logits = functional.linear(x, weight, bias)
    chosen, shares = _choices(x, experts_per_token)
    sizes = _choice_sizes(len(weight), experts_per_token)
    router.choose[(len(x),)](
        logits, chosen, shares, len(weight), **sizes, num_warps=1, **launches.early("choose")
    )
    return chosen, shares


def _choices(x: Tensor, experts_per_token: int) -> tuple[Tensor, Tensor]:
    chosen = torch.empty(len(x), experts_per_token, dtype=torch.int64, device=x.device)
    return chosen, torch.empty(len(x), experts_per_token, dtype=torch.float32, device=x.device)


def _choice_sizes(experts: int, experts_per_token: int) -> dict[str, int]:
    return {
        "CHOSEN": experts_per_token,
        "SHARES": triton.next_power_of_2(experts_per_token),
        "EXPERTS": triton.next_power_of_2(experts),
    }


@cache
def _counters(device: torch.device) -> Tensor:
    """ROUTED_TOKENS zeros; kernels reset them."""
    return torch.zeros(ROUTED_TOKENS, dtype=torch.int32, device=device)


def columns_per_turn(columns: int, most: int = 128) -> int:
    """How many columns of a product one turn of the loop takes."""
    return min(most, int(triton.next_power_of_2(columns)))


def sample(logits: Tensor, picking: Picking) -> Tensor:
    """A row that sets only a temperature costs one pass over its logits."""
    rows, vocabulary = logits.shape
    adjusts, masks = picking.adjustments is not None, picking.masks is not None
    chunks = triton.cdiv(vocabulary, CHUNK)
    adjusted = torch.empty_like(logits) if adjusts or masks else logits
    peaks, weights = torch.empty(2, rows, chunks, dtype=torch.float32, device=logits.device)
    places = torch.empty(rows, chunks, dtype=torch.int32, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    sampling.survey[(rows, chunks)](
        logits, adjusted, picking.adjustments, picking.adjustment_of, picking.masks, picking.mask_of,
        picking.temperature, peaks, places, weights,
        vocabulary, 0 if picking.masks is None else picking.masks.shape[1], logits.stride(0), chunks,
        HAS_ADJUSTMENTS=adjusts, HAS_MASKS=masks, CHUNK=CHUNK, num_warps=8,
    )  # fmt: skip
    sampling.draw[(rows,)](
        adjusted, peaks, places, weights, picking.temperature, picking.top_k, picking.top_p, picking.min_p,
        picking.points, tokens, vocabulary, adjusted.stride(0), chunks,
        CHUNK=CHUNK, CHUNKS=triton.next_power_of_2(chunks), num_warps=8,
    )  # fmt: skip
    return tokens
