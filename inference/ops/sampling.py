"""Picks tokens from logits in plain PyTorch: the oracle for kernels, and the ops that the CPU runs.

Takes the logits and settings of rows and returns tokens and log-probabilities. The caller passes the random
numbers: one uniform number per row, for any settings. It keeps no state and must not know requests.

The order is: the repetition penalty, adjustments (logit_bias and the other penalties), the grammar's mask,
temperature, min_p, top_k, top_p. The whole vocabulary is never sorted: that takes 16 ms for 201,088 logits,
finding the best 64 of them 0.13 ms, a pass over all of them 0.1 ms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

BLOCK, SMALL_BLOCK = 1024, 64
# The smallest exponent whose power is a normal float32. Smaller powers are slow on a CPU (201,088 logits at a
# temperature of 0.3 take 2.2 ms with them, 0.2 without) and too small to matter in any sum of weights.
MIN_EXPONENT = -87.0
_MIN_WEIGHT = 1.001 * math.exp(MIN_EXPONENT)  # a power may be rounded up
PARTS = (64, 512)  # how many of the best tokens are tried as the nucleus, in this order
# What each mask byte adds to its eight logits. Adding these rows takes 0.1 ms for 201,088 logits on a CPU;
# filling by a mask of booleans takes 0.7.
_MASK_BYTES = torch.tensor(
    [[0.0 if byte >> bit & 1 else -math.inf for bit in range(8)] for byte in range(256)]
)


@dataclass(frozen=True, slots=True)
class Picking:
    """How to pick from each of R rows of logits."""

    temperature: Tensor  # R, float32; 0 is greedy
    top_k: Tensor  # R, int32; 0 means all
    top_p: Tensor  # R, float32
    min_p: Tensor  # R, float32
    points: Tensor  # R, float64: 0 ≤ point < 1, where to draw in the distribution
    adjustments: Tensor | None = None  # A × V, float32: added to the logits
    adjustment_of: Tensor | None = None  # R, int32: this row's row of `adjustments`; -1 means none
    masks: Tensor | None = None  # M × ⌈V/8⌉, uint8, lowest bit first: 1 where the token may be picked
    mask_of: Tensor | None = None  # R, int32: this row's row of `masks`; -1 means none


def sample(logits: Tensor, picking: Picking) -> Tensor:
    """Takes R×V float32, unchanged; returns R tokens, -1 where the largest logit is not finite."""
    return torch.tensor(
        [_sample_row(logits[row], picking, row) for row in range(len(logits))], dtype=torch.int64
    )


def _sample_row(logits: Tensor, picking: Picking, row: int) -> int:
    adjusted = logits
    if picking.adjustments is not None and picking.adjustment_of is not None:
        at = int(picking.adjustment_of[row])
        adjusted = adjusted if at < 0 else adjusted + picking.adjustments[at]
    if picking.masks is not None and picking.mask_of is not None:
        at = int(picking.mask_of[row])
        adjusted = adjusted if at < 0 else adjusted + mask_row(picking.masks[at], len(logits))
    token = pick(
        adjusted,
        temperature=float(picking.temperature[row]),
        top_k=int(picking.top_k[row]),
        top_p=float(picking.top_p[row]),
        min_p=float(picking.min_p[row]),
        point=float(picking.points[row]),
    )
    return -1 if token is None else token


def log_probabilities(
    logits: Tensor, tokens: Tensor, top: int, among: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """By the model's own distribution: those of `tokens` (R), and the likeliest with their ids (R×top), or
    those of the tokens `among` (A)."""
    totals = torch.logsumexp(logits, 1, keepdim=True)
    if among is None:
        values, ids = logits.topk(min(top, logits.shape[1]), 1)
    else:
        values, ids = logits[:, among], among.expand(len(logits), -1)
    return (logits.gather(1, tokens.unsqueeze(1)) - totals).squeeze(1), values - totals, ids


def mask_row(bits: Tensor, vocab_size: int) -> Tensor:
    """A mask's bytes as V floats to add: 0 where the bit is set, else -inf, also past the end of the mask."""
    row = _MASK_BYTES.to(bits.device).index_select(0, bits.int()).view(-1)[:vocab_size]
    if len(row) == vocab_size:
        return row
    return torch.cat((row, torch.full((vocab_size - len(row),), -math.inf, device=bits.device)))


def penalised(logits: Tensor, repeated: Tensor, penalty: float) -> Tensor:
    """V logits with the `repeated` ones (booleans) made less likely; the argument stays as it is."""
    return torch.where(repeated, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def pick(
    logits: Tensor, *, temperature: float, top_k: int, top_p: float, min_p: float, point: float
) -> int | None:
    """Picks a token from V logits, None if they are not finite. Each op has its own order for `point`."""
    if temperature <= 0:
        return _first_largest(logits)
    best = float(logits.max())
    if not math.isfinite(best):
        return None
    # Below 1e-4 float32 would overflow; the choice is as good as greedy there.
    scaled = (logits - best).div_(max(temperature, 1e-4))
    if min_p > 0:
        scaled = scaled.masked_fill_(scaled < math.log(min(min_p, 1.0)), -math.inf)
    if 0 < top_k < len(scaled):
        values, ids = largest(scaled, top_k)
        return int(ids[_pick(_nucleus(values.exp_(), top_p), point)].item())
    if top_p < 1:
        return _draw_from_nucleus(scaled, top_p, point)
    return _pick(_weights(scaled), point)


def largest(row: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest numbers of a row in descending order, and their indices. They lie in the `count`
    blocks with the largest maxima: searching only those takes a third of the time."""
    covered = len(row) - len(row) % SMALL_BLOCK
    blocks = row[:covered].view(-1, SMALL_BLOCK)
    if count >= len(blocks):
        values, at = row.topk(count)
        return values, at
    chosen = blocks.amax(1).topk(count).indices
    places = (chosen.unsqueeze(1) * SMALL_BLOCK + torch.arange(SMALL_BLOCK, device=row.device)).view(-1)
    places = torch.cat((places, torch.arange(covered, len(row), device=row.device)))
    values, at = row[places].topk(count)
    return values, places[at]


def _weights(scaled: Tensor) -> Tensor:
    """e to the power of `scaled`, which is at most 0; exactly 0 for tokens too unlikely or forbidden."""
    powers = scaled.clamp(min=MIN_EXPONENT).exp_()
    return functional.threshold(powers, _MIN_WEIGHT, 0.0)


def _first_largest(logits: Tensor) -> int | None:
    """Its index; None if it is not finite. By blocks: argmax over all takes three times as long."""
    covered = len(logits) - len(logits) % BLOCK
    maxima = logits[:covered].view(-1, BLOCK).amax(1)
    if covered < len(logits):
        maxima = torch.cat((maxima, logits[covered:].amax(0, keepdim=True)))
    block = int(maxima.argmax())  # that of NaN if there is one
    if not math.isfinite(float(maxima[block])):
        return None
    return block * BLOCK + int(logits[block * BLOCK : (block + 1) * BLOCK].argmax())


def _pick(weights: Tensor, point: float) -> int:
    """The index at `point` (0 ≤ point < 1) of the weights laid end to end. It finds the block first: running
    sums over the whole vocabulary cost three times as much."""
    covered = len(weights) - len(weights) % BLOCK
    blocks = weights[:covered].view(-1, BLOCK).sum(1, dtype=torch.float64)
    sums = torch.cat((blocks, weights[covered:].sum(dtype=torch.float64).view(1))).cumsum(0)
    target = float(sums[-1]) * point
    block = _index_at(sums, target)
    inside = weights[block * BLOCK : (block + 1) * BLOCK].cumsum(0, dtype=torch.float64)
    return block * BLOCK + _index_at(inside, target - (float(sums[block - 1]) if block else 0.0))


def _index_at(sums: Tensor, target: float) -> int:
    """The first index whose running sum exceeds the target; if rounding leaves none, the last weight's."""
    index = int(torch.searchsorted(sums, target, right=True))
    if index < len(sums):
        return index
    return int(torch.searchsorted(sums, sums[-1:]).item())


def _nucleus(weights: Tensor, top_p: float, total: Tensor | None = None) -> Tensor:
    """The fewest of weights in descending order that reach top_p of the total (None: of their own sum)."""
    if top_p >= 1:
        return weights
    sums = torch.cumsum(weights, 0, dtype=torch.float64)
    reached = sums >= top_p * (sums[-1] if total is None else total)
    count = int(reached.int().argmax().item()) + 1 if bool(reached.any()) else len(weights)
    return weights[:count]


def _draw_from_nucleus(scaled: Tensor, top_p: float, point: float) -> int:
    weights = _weights(scaled)
    total = weights.sum(dtype=torch.float64)
    narrow = _narrow_nucleus(scaled, total, top_p)
    if narrow is None:
        return _pick(_wide_nucleus(weights, total, top_p), point)
    return int(narrow[1][_pick(narrow[0], point)].item())


def _narrow_nucleus(scaled: Tensor, total: Tensor, top_p: float) -> tuple[Tensor, Tensor] | None:
    """The nucleus' weights in descending order and their ids, from the smallest of PARTS that holds it."""
    for part in PARTS:
        if part >= len(scaled):
            return None
        values, ids = largest(scaled, part)
        weights = values.exp_()
        if float(weights.sum(dtype=torch.float64)) >= top_p * float(total):
            return _nucleus(weights, top_p, total), ids
    return None


def _wide_nucleus(weights: Tensor, total: Tensor, top_p: float) -> Tensor:
    """The weights, with 0 outside the nucleus, that is, below the largest bound that keeps enough weight.

    It finds the bound by halving its logarithm, in about 30 passes over the vocabulary: 2 ms, where sorting
    takes 16. Weights that differ by less than one part in 10^7 are in or out together.
    """
    wanted = top_p * float(total)
    low, high = 1e-38, 2.0  # the largest weight is 1
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        kept = float(functional.threshold(weights, middle, 0.0).sum(dtype=torch.float64))
        low, high = (middle, high) if kept >= wanted else (low, middle)
    return functional.threshold(weights, low, 0.0)
