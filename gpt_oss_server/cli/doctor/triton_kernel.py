"""A kernel that triton compiles for the GPU, to find out whether it can."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _double(numbers, doubles, size: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, size)
    tl.store(doubles + at, 2 * tl.load(numbers + at))


def doubled(size: int) -> list[int]:
    numbers = torch.arange(size, device="cuda", dtype=torch.int32)
    doubles = torch.empty_like(numbers)
    _double[(1,)](numbers, doubles, size)
    found: list[int] = doubles.tolist()
    return found
