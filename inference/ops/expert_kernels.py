"""A layer's MXFP4 experts on a GPU: cuts the pairs into tiles and launches the kernels that multiply them.

Rows are sorted by expert, so that each expert's weights are read once for all its rows. Nothing here waits
for the device: the shapes give an upper bound for the number of tiles, and surplus ones return immediately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from inference.ops import launches
from inference.ops.kernels import experts as kernels
from inference.ops.kernels import norm, pairs
from inference.ops.packing import PackedRows

UNCOUNTED_PAIRS = 1024  # up to this many pairs, the launch that sorts them also counts them
PAIRS_PER_READ = 2048  # by a program for one expert
COMPARISONS = 4096  # of a pair with an expert, as many as fit the registers
EXACT_TOKENS = 64  # up to this many tokens, the experts' results stay in float32 until they are summed


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pairs sorted by expert, and tiles of up to `tokens` pairs of one expert."""

    order: Tensor
    experts: Tensor
    starts: Tensor
    ends: Tensor
    tokens: int
    alone: bool = False  # one token: tile n holds pair n only, with the token's nth expert


class Mixture:
    """One layer's experts: `first` holds W1's rows, gate and linear alternating, `second` W2's."""

    waits_for_device = False

    def __init__(
        self,
        first: PackedRows,
        first_bias: Tensor,
        second: PackedRows,
        second_bias: Tensor,
        *,
        limit: float,
        alpha: float,
    ) -> None:
        self._first, self._first_bias = first, first_bias
        self._second, self._second_bias = second, second_bias
        self._limit, self._alpha = limit, alpha

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """x is T×H, chosen and shares T×k; returns T×H."""
        return self.added_to(torch.zeros_like(x), x, chosen, shares)

    def added_to(self, residual: Tensor, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        tokens, per_token = chosen.shape
        hidden = self._second.rows
        experts = len(self._first_bias)
        how, tiles = launches.of_experts(tokens, chosen.numel(), experts), tiled(chosen, experts)
        inner = self._gate_up(x, tiles, how.gate_up, per_token, chosen.numel())
        results = self._down(inner, tiles, how.down, tokens)
        out = torch.empty_like(residual)
        width = min(1024, triton.next_power_of_2(hidden))
        norm.gather[(tokens, triton.cdiv(hidden, width))](
            residual, results, shares, out, hidden, chosen.numel(),
            CHOSEN=per_token, SPLITS=len(results), WIDTH=width, num_warps=4,
            **launches.early("gather"),
        )  # fmt: skip
        return out

    def _gate_up(self, x: Tensor, tiles: Tiles, how: launches.Product, per_token: int, count: int) -> Tensor:
        rows, intermediate = self._first, self._second.columns
        inner = torch.empty(count, intermediate, dtype=x.dtype, device=x.device)
        kernels.gate_up[(triton.cdiv(rows.fragments, how.fragments), len(tiles.experts))](
            x, inner, rows.words, rows.scales, self._first_bias,
            tiles.order, tiles.experts, tiles.starts, tiles.ends,
            rows.columns, rows.tiles, intermediate, rows.fragments, self._limit, self._alpha,
            CHOSEN=per_token, **_sizes(tiles, how), **launches.early("gate_up"),
        )  # fmt: skip
        return inner

    def _down(self, inner: Tensor, tiles: Tiles, how: launches.Product, tokens: int) -> Tensor:
        """Returns SPLITS × pairs × H."""
        rows = self._second
        splits = how.splits if rows.tiles % how.splits == 0 else 1
        dtype = torch.float32 if tokens <= EXACT_TOKENS else inner.dtype
        out = torch.empty(splits, len(inner), rows.rows, dtype=dtype, device=inner.device)
        kernels.down[(triton.cdiv(rows.fragments, how.fragments), len(tiles.experts), splits)](
            inner, out, rows.words, rows.scales, self._second_bias,
            tiles.order, tiles.experts, tiles.starts, tiles.ends,
            rows.columns, rows.tiles, rows.rows, len(inner), rows.fragments,
            SPLITS=splits, **_sizes(tiles, how), **launches.early("down"),
        )  # fmt: skip
        return out


def _sizes(tiles: Tiles, how: launches.Product) -> dict[str, int]:
    return {
        "FRAGMENTS": how.fragments,
        "TOKENS": tiles.tokens,
        "SHARERS": how.sharers,
        "UNROLL": how.unroll,
        "ALONE": tiles.alone,
        "PLAIN": launches.PLAIN,
        "num_warps": how.warps,
        "num_stages": how.stages,
    }


def tiled(chosen: Tensor, experts: int) -> Tiles:
    """`chosen` is T×k."""
    pairs = chosen.numel()
    size = launches.of_experts(len(chosen), pairs, experts).tokens
    if len(chosen) == 1:
        return _one_token(chosen, size)
    # An upper bound: the real number is known only to the device.
    count = min(pairs, experts) + pairs // size
    return _sorted(chosen, experts, size, count)


@cache
def _places(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device)


def _one_token(chosen: Tensor, size: int) -> Tiles:
    """A token's experts all differ: nothing needs sorting."""
    places = _places(chosen.numel() + 1, chosen.device)
    return Tiles(places[:-1], chosen.view(-1), places[:-1], places[1:], size, alone=True)


def _sorted(chosen: Tensor, experts: int, size: int, count: int) -> Tiles:
    pair_count = chosen.numel()
    order, owners, starts, ends, counts = (
        torch.empty(length, dtype=torch.int32, device=chosen.device)
        for length in (pair_count, count, count, count, experts)
    )
    counted = pair_count > UNCOUNTED_PAIRS
    width = triton.next_power_of_2(experts)
    per_read = min(PAIRS_PER_READ, max(16, triton.next_power_of_2(pair_count)))
    compared = max(16, COMPARISONS // width)  # pairs or tiles compared with all experts simultaneously
    warps = 8 if per_read > 1024 else 4
    if counted:
        pairs.count[(experts,)](
            chosen, counts, pair_count, PAIRS=per_read, num_warps=warps, **launches.early("count")
        )
    pairs.place[(experts + 1,)](
        chosen, counts, order, owners, starts, ends, pair_count, experts, count,
        COUNTED=counted, PAIRS=per_read, AT_ONCE=min(compared, per_read), EXPERTS=width,
        TILES=min(compared, triton.next_power_of_2(count)), TOKENS=size, num_warps=warps,
        **launches.early("place"),
    )  # fmt: skip
    return Tiles(order, owners, starts, ends, size)
