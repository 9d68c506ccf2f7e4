"""Launches that start before the previous one has ended: Hopper's programmatic dependent launch.

EARLY has three bits. WAITS: the launch starts early. While the previous launch still runs, its programs may
load what no launch of the step writes, above all their weights. Then they call `wait_for_previous`, after
which all earlier launches are complete. Every program calls it before it reads or writes anything else, or a
later launch could overtake. FIRST and LATER: a program lets the next launch start, at its beginning or after
its wait; the next launch starts when all programs have done so or ended.
"""

import triton
import triton.language as tl

WAITS: tl.constexpr = tl.constexpr(1)
FIRST: tl.constexpr = tl.constexpr(2)
LATER: tl.constexpr = tl.constexpr(4)


@triton.jit
def begin_next(EARLY: tl.constexpr):
    if FIRST & EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_previous(EARLY: tl.constexpr):
    if WAITS & EARLY:
        tl.extra.cuda.gdc_wait()
    if LATER & EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def as_loaded(values, EARLY: tl.constexpr):
    """Returns the same values, bf16 or FP8; keeps the compiler from converting them before the wait."""
    if WAITS & EARLY and values.dtype == tl.float8e4nv:
        values = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=tl.float8e4nv, is_pure=False, pack=4
        )
    elif WAITS & EARLY:
        values = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=tl.bfloat16, is_pure=False, pack=2
        )
    return values
