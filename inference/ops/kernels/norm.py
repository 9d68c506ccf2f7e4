"""RMSNorm, and the sum that ends a layer: by row, in float32, rounded once."""

import triton
import triton.language as tl

from inference.ops.kernels.early import begin_next, wait_for_previous


@triton.jit
def rms_norm(x_ptr, norm_ptr, out_ptr, hidden, eps, WIDTH: tl.constexpr, EARLY: tl.constexpr):
    """Each program takes one row; WIDTH is the power of two that holds it."""
    begin_next(EARLY)
    column = tl.arange(0, WIDTH)
    inside = column < hidden
    at = tl.program_id(0).to(tl.int64) * hidden + column
    weight = tl.load(norm_ptr + column, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x) / hidden + eps)
    tl.store(out_ptr + at, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gather(
    x_ptr, results_ptr, shares_ptr, out_ptr, hidden, pairs,
    CHOSEN: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = x + Σ share · result, summed by expert in the order of choice and, for each, by split. `gate_up`
    lets no launch start before x and the shares are written, so x is read before the wait."""
    begin_next(EARLY)
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = column < hidden
    total = tl.load(x_ptr + token * hidden + column, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    for choice in tl.static_range(CHOSEN):
        pair = token * CHOSEN + choice
        result = tl.zeros((WIDTH,), tl.float32)
        for split in tl.static_range(SPLITS):
            at = (split * pairs.to(tl.int64) + pair) * hidden + column
            result += tl.load(results_ptr + at, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(shares_ptr + pair).to(tl.float32) * result
    tl.store(out_ptr + token * hidden + column, total.to(out_ptr.dtype.element_ty), mask=inside)
