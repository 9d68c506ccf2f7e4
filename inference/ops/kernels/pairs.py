"""Pairs of token and chosen expert, sorted by expert and cut into tiles by one program."""

import triton
import triton.language as tl


@triton.jit
def sort(
    chosen_ptr, order_ptr, expert_ptr, start_ptr, end_ptr, pairs, experts, tiles,
    PAIRS: tl.constexpr, EXPERTS: tl.constexpr, TILES: tl.constexpr, AT_ONCE: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """order: the pairs by expert, then by token; a tile is up to TOKENS of one expert, from start to end.

    Tiles that are left over are empty: start and end are equal.
    """
    pair = tl.arange(0, PAIRS)
    expert = tl.arange(0, EXPERTS)
    # A pair that is not there has an expert past the last.
    key = tl.load(chosen_ptr + pair, mask=pair < pairs, other=EXPERTS).to(tl.int32) * PAIRS + pair
    rank = tl.zeros((PAIRS,), tl.int32)
    counts = tl.zeros((EXPERTS,), tl.int32)
    for first in range(0, PAIRS, AT_ONCE):
        some = first + tl.arange(0, AT_ONCE)
        owner = tl.load(chosen_ptr + some, mask=some < pairs, other=EXPERTS).to(tl.int32)
        rank += tl.sum(((owner * PAIRS + some)[None, :] < key[:, None]).to(tl.int32), 1)
        counts += tl.sum((owner[:, None] == expert[None, :]).to(tl.int32), 0)
    tl.store(order_ptr + rank, pair, mask=pair < pairs)
    ends = tl.cumsum(counts, 0)
    tiles_of = (counts + TOKENS - 1) // TOKENS
    last_tiles = tl.cumsum(tiles_of, 0)
    # Where the expert's tile 0 would start, were all tiles before its own ones full and its too.
    origins = ends - counts - (last_tiles - tiles_of) * TOKENS
    # In turns: of all tiles and 128 experts at once, the comparisons do not fit the registers.
    for first in range(0, tiles, TILES):
        tile = first + tl.arange(0, TILES)
        owner = tl.sum((last_tiles[None, :] <= tile[:, None]).to(tl.int32), 1)
        own = owner[:, None] == expert[None, :]
        start = tl.sum(tl.where(own, origins[None, :], 0), 1) + tile * TOKENS
        end = tl.sum(tl.where(own, ends[None, :], 0), 1)
        used = (owner < experts) & (tile < tiles)
        wanted = tile < tiles
        tl.store(expert_ptr + tile, tl.where(used, owner, 0), mask=wanted)
        tl.store(start_ptr + tile, tl.where(used, start, 0), mask=wanted)
        tl.store(end_ptr + tile, tl.where(used, tl.minimum(start + TOKENS, end), 0), mask=wanted)
