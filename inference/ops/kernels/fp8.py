"""FP8 numbers (E4M3) to and from the types that kernels compute in."""

import triton
import triton.language as tl

LARGEST: tl.constexpr = tl.constexpr(448.0)


@triton.jit
def widened(values, type: tl.constexpr):
    """FP8 values in `type`; others as they are. By way of float32: Hopper converts FP8 to half precision and
    that to float32 with two to four times the rate of a conversion from half precision to bf16."""
    if values.dtype == tl.float8e4nv:
        values = values.to(tl.float32).to(type)
    return values


@triton.jit
def stored(values, type: tl.constexpr):
    """float32 values in `type`; FP8 takes the nearest number within its range."""
    if type == tl.float8e4nv:
        values = tl.minimum(tl.maximum(values, -LARGEST), LARGEST)
    return values.to(type)
