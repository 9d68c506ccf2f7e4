"""Sorts pairs of token and chosen expert by expert and cuts them into tiles.

One program per expert places the expert's pairs after those of the previous experts; one more program cuts
the tiles. For many pairs, an earlier launch counts the pairs of each expert.
"""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous


@triton.jit
def count(chosen_ptr, counts_ptr, pairs, PAIRS: tl.constexpr, EARLY: tl.constexpr):
    """Counts the pairs of each expert: one expert per program."""
    begin_next(EARLY)
    wait_for_previous(EARLY)
    found = tl.zeros((PAIRS,), tl.int32)
    for first in range(0, pairs, PAIRS):
        pair = first + tl.arange(0, PAIRS)
        found += (tl.load(chosen_ptr + pair, mask=pair < pairs, other=-1) == tl.program_id(0)).to(tl.int32)
    tl.store(counts_ptr + tl.program_id(0), tl.sum(found, 0))


@triton.jit
def place(
    chosen_ptr, counts_ptr, order_ptr, expert_ptr, start_ptr, end_ptr, pairs, experts, tiles,
    COUNTED: tl.constexpr, PAIRS: tl.constexpr, AT_ONCE: tl.constexpr, EXPERTS: tl.constexpr,
    TILES: tl.constexpr, TOKENS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """`order` gets the pairs by expert, then token. A tile is up to TOKENS of one expert, start to end.
    Surplus tiles are empty: start equals end."""
    begin_next(EARLY)
    wait_for_previous(EARLY)
    expert = tl.arange(0, EXPERTS)
    own = tl.program_id(0)
    if own == experts:
        if COUNTED:
            counts = tl.load(counts_ptr + expert, mask=expert < experts, other=0)
        else:
            counts = tl.zeros((EXPERTS,), tl.int32)
            for first in range(0, pairs, AT_ONCE):
                some = first + tl.arange(0, AT_ONCE)
                owner = tl.load(chosen_ptr + some, mask=some < pairs, other=-1)
                counts += tl.sum((owner[:, None] == expert[None, :]).to(tl.int32), 0)
        _cut(counts, expert, expert_ptr, start_ptr, end_ptr, experts, tiles, TILES, TOKENS)
    else:
        if COUNTED:
            end = tl.sum(tl.load(counts_ptr + expert, mask=expert < own, other=0), 0)
        else:
            end = tl.zeros((), tl.int32)
            for first in range(0, pairs, PAIRS):
                pair = first + tl.arange(0, PAIRS)
                owner = tl.load(chosen_ptr + pair, mask=pair < pairs, other=EXPERTS)
                end += tl.sum((owner < own).to(tl.int32), 0)
        for first in range(0, pairs, PAIRS):
            pair = first + tl.arange(0, PAIRS)
            mine = (tl.load(chosen_ptr + pair, mask=pair < pairs, other=-1) == own).to(tl.int32)
            tl.store(order_ptr + end + tl.cumsum(mine, 0) - 1, pair, mask=mine == 1)
            end += tl.sum(mine, 0)


@triton.jit
def _cut(
    counts, expert, expert_ptr, start_ptr, end_ptr, experts, tiles, TILES: tl.constexpr, TOKENS: tl.constexpr
):  # fmt: skip
    """Cuts each expert's pairs, which are contiguous, into tiles."""
    ends = tl.cumsum(counts, 0)
    tiles_of = (counts + TOKENS - 1) // TOKENS
    last_tiles = tl.cumsum(tiles_of, 0)
    # Where tile 0 would start if every tile before the expert's own were a full tile of that expert.
    origins = ends - counts - (last_tiles - tiles_of) * TOKENS
    # In turns: the comparisons of all tiles with 128 experts do not fit the registers.
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
