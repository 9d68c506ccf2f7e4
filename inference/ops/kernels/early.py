"""Launches that begin before the one ahead of them has ended: Hopper's programmatic dependent launch.

EARLY has four bits. WAITS: the launch is an early one. Its programs may load what no launch of the step
writes, its weights above all, while the launch ahead still runs; then they call `wait_for_previous`, behind
which all earlier launches are complete. Every program calls it, before it reads or writes anything else: a
launch that did not would let later ones overtake. FIRST and LATER: a program lets the next launch begin, at
once or behind its wait; it begins when all programs have done so, or ended. AHEAD: a program asks the
second-level cache for weights before it waits.
"""

import triton
import triton.language as tl

WAITS: tl.constexpr = tl.constexpr(1)
FIRST: tl.constexpr = tl.constexpr(2)
LATER: tl.constexpr = tl.constexpr(4)
AHEAD: tl.constexpr = tl.constexpr(8)


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
    """The same bf16 values. What is computed from them is computed here and not where they were loaded."""
    if WAITS & EARLY:
        values = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=tl.bfloat16, is_pure=False, pack=2
        )
    return values


@triton.jit
def prefetch(ptr, lines, most: tl.constexpr, EARLY: tl.constexpr):
    """Asks the second-level cache for `lines` times 128 bytes from ptr on; `most` is a power of two."""
    if AHEAD & EARLY:
        line = tl.arange(0, most)
        tl.inline_asm_elementwise(
            """
            {
            .reg .pred wanted;
            setp.ne.b32 wanted, $2, 0;
            @wanted prefetch.global.L2 [$1];
            mov.b32 $0, 0;
            }
            """,
            "=r,l,r",
            [ptr.to(tl.int64) + line.to(tl.int64) * 128, (line < lines).to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
