"""A layer's MXFP4 experts on a GPU: which tiles of pairs there are, and the launches that multiply them.

In go normalised rows, their experts and shares, out come the sums. Rows are sorted by expert, so that each
expert's weights are read once for all its rows. Nothing here waits for the device: how many tiles there are
at most follows from the shapes, and those that are left over end at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from inference.ops import launches
from inference.ops.kernels import experts as kernels
from inference.ops.kernels import norm, pairs
from inference.ops.packing import PackedRows

UNCOUNTED_PAIRS = 1024  # up to so many pairs the launch that sorts them counts them itself
PAIRS_AT_ONCE = 2048  # that a program for one expert reads at a time
COMPARED_AT_ONCE = 4096  # comparisons of a pair with an expert that fit the registers
EXACT_TOKENS = 64  # up to so many tokens the experts' results are kept in float32 until they are summed


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pairs in the order of their experts, and tiles of up to `tokens` pairs of one expert."""

    order: Tensor
    experts: Tensor
    starts: Tensor
    ends: Tensor
    tokens: int
    alone: bool = False  # one token: tile n is of its nth expert, and of pair n alone


class Mixture:
    """One layer's experts: `first` are W1's rows, gate and linear alternating, `second` W2's."""

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
        """x T×H, chosen and shares T×k; out T×H."""
        return self.added_to(torch.zeros_like(x), x, chosen, shares)

    def added_to(self, residual: Tensor, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        tokens, per_token = chosen.shape
        hidden = self._second.rows
        experts = len(self._first_bias)
        how, tiles = launches.of_experts(tokens, chosen.numel(), experts), tiles_of(chosen, experts)
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
        """SPLITS × pairs × H."""
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


def tiles_of(chosen: Tensor, experts: int) -> Tiles:
    """Of T×k experts."""
    pairs = chosen.numel()
    size = launches.of_experts(len(chosen), pairs, experts).tokens
    if len(chosen) == 1:
        return _one_token(chosen, size)
    # As many tiles as there can be at most.
    count = min(pairs, experts) + pairs // size
    return _sorted(chosen, experts, size, count)


_places: dict[tuple[torch.device, int], Tensor] = {}


def _one_token(chosen: Tensor, size: int) -> Tiles:
    """Its experts are all different: nothing is to be sorted."""
    key = (chosen.device, chosen.numel())
    if key not in _places:
        _places[key] = torch.arange(chosen.numel() + 1, dtype=torch.int32, device=chosen.device)
    places = _places[key]
    return Tiles(places[:-1], chosen.view(-1), places[:-1], places[1:], size, alone=True)


def _sorted(chosen: Tensor, experts: int, size: int, count: int) -> Tiles:
    pairs_of_all = chosen.numel()
    order, owners, starts, ends, counts = (
        torch.empty(length, dtype=torch.int32, device=chosen.device)
        for length in (pairs_of_all, count, count, count, experts)
    )
    counted = pairs_of_all > UNCOUNTED_PAIRS
    width = triton.next_power_of_2(experts)
    at_once = min(PAIRS_AT_ONCE, max(16, triton.next_power_of_2(pairs_of_all)))
    compared = max(16, COMPARED_AT_ONCE // width)  # of pairs or tiles, with all experts
    warps = 8 if at_once > 1024 else 4
    if counted:
        pairs.count[(experts,)](
            chosen, counts, pairs_of_all, PAIRS=at_once, num_warps=warps, **launches.early("count")
        )
    pairs.place[(experts + 1,)](
        chosen, counts, order, owners, starts, ends, pairs_of_all, experts, count,
        COUNTED=counted, PAIRS=at_once, AT_ONCE=min(compared, at_once), EXPERTS=width,
        TILES=min(compared, triton.next_power_of_2(count)), TOKENS=size, num_warps=warps,
        **launches.early("place"),
    )  # fmt: skip
    return Tiles(order, owners, starts, ends, size)
