"""The number format in which this processor multiplies fastest."""

from __future__ import annotations

import time
from functools import cache

import torch

_TRIES = 8


def products_in_bf16(device: torch.device) -> bool:
    """Whether products on the device are faster in bf16 than in float32; on a GPU they are."""
    return device.type == "cuda" or _on_this_processor()


@cache
def _on_this_processor() -> bool:
    """Whether products are faster in bf16 than in float32.

    Without an instruction for them they are far slower, and with one not always faster, so this measures
    both, in a few hundredths of a second.
    """
    return torch.cpu._is_avx512_bf16_supported() and _seconds(torch.bfloat16) < _seconds(torch.float32)


def _seconds(kind: torch.dtype) -> float:
    """The time of a product as in training: the best of several tries."""
    left, right = torch.ones(2048, 320, dtype=kind), torch.ones(320, 768, dtype=kind)
    best = float("inf")
    for _ in range(_TRIES):
        began = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - began)
    return best
