"""The router: chooses the experts of each token, and their shares."""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous


@triton.jit
def _choose(logits, expert, chosen_ptr, shares_ptr, token, CHOSEN: tl.constexpr, SHARES: tl.constexpr):
    """Stores the best CHOSEN experts, of equals the first, and their softmax. SHARES: power of 2 ≥ CHOSEN."""
    slot = tl.arange(0, SHARES)
    best = tl.full((SHARES,), float("-inf"), tl.float32)
    for choice in tl.static_range(CHOSEN):
        value, at = tl.max(logits, 0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(chosen_ptr + token * CHOSEN + choice, at.to(tl.int64))
        best = tl.where(slot == choice, value, best)
        logits = tl.where(expert == at, float("-inf"), logits)
    weight = tl.exp(best - tl.max(best, 0))
    share = weight / tl.sum(weight, 0)
    tl.store(shares_ptr + token * CHOSEN + slot, share.to(shares_ptr.dtype.element_ty), mask=slot < CHOSEN)


@triton.jit
def choose(
    logits_ptr, chosen_ptr, shares_ptr, experts,
    CHOSEN: tl.constexpr, SHARES: tl.constexpr, EXPERTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """From finished logits: one token per program."""
    begin_next(EARLY)
    wait_for_previous(EARLY)
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, EXPERTS)
    logits = tl.load(logits_ptr + token * experts + expert, mask=expert < experts, other=float("-inf"))
    _choose(logits.to(tl.float32), expert, chosen_ptr, shares_ptr, token, CHOSEN, SHARES)


@triton.jit
def norm_and_route(
    x_ptr, norm_ptr, weight_ptr, bias_ptr, normed_ptr, logits_ptr, counters_ptr, chosen_ptr, shares_ptr,
    hidden, experts, eps,
    CHOSEN: tl.constexpr, SHARES: tl.constexpr, EXPERTS: tl.constexpr, PART: tl.constexpr,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Normalises and routes a row. A program takes PART experts; the last program of a row to finish chooses.
    `counters` holds one counter per row, 0 before and after."""
    begin_next(EARLY)
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < hidden
    own = tl.program_id(1) * PART + tl.arange(0, PART)
    valid = own < experts
    rows = weight_ptr + own.to(tl.int64)[:, None] * hidden
    if COLUMNS == WIDTH:  # starts every load before the first sum waits for one
        whole = tl.load(rows + column[None, :], mask=valid[:, None] & inside[None, :], other=0.0)
    factor = tl.load(norm_ptr + column, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + own, mask=valid, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(x_ptr + token * hidden + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x) / hidden + eps)
    normed = (x * scale * factor).to(normed_ptr.dtype.element_ty)
    if tl.program_id(1) == 0:
        tl.store(normed_ptr + token * hidden + column, normed, mask=inside)
    if COLUMNS == WIDTH:
        logit = tl.sum(whole.to(tl.float32) * normed.to(tl.float32)[None, :], 1)
    else:
        sums = tl.zeros((PART, COLUMNS), tl.float32)
        for first in range(0, hidden, COLUMNS):
            part = first + tl.arange(0, COLUMNS)
            within = part < hidden
            piece = tl.load(x_ptr + token * hidden + part, mask=within, other=0.0).to(tl.float32)
            piece = piece * scale * tl.load(norm_ptr + part, mask=within, other=0.0).to(tl.float32)
            piece = piece.to(normed_ptr.dtype.element_ty).to(tl.float32)
            weight = tl.load(rows + part[None, :], mask=valid[:, None] & within[None, :], other=0.0)
            sums += weight.to(tl.float32) * piece[None, :]
        logit = tl.sum(sums, 1)
    tl.store(logits_ptr + token * experts + own, logit + bias, mask=valid)
    tl.debug_barrier()
    if tl.atomic_add(counters_ptr + token, 1, sem="acq_rel") == tl.num_programs(1) - 1:
        expert = tl.arange(0, EXPERTS)
        logits = tl.load(
            logits_ptr + token * experts + expert,
            mask=expert < experts,
            other=float("-inf"),
            cache_modifier=".cg",
        )
        _choose(logits, expert, chosen_ptr, shares_ptr, token, CHOSEN, SHARES)
        tl.store(counters_ptr + token, 0)
