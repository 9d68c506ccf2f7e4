"""The head on a CPU: by far the largest matrix of a small model, read in full for every token.

Weights stored in 16 bits stay in 16 bits (`inference.ops.halves`). For 201,088 × 128 on one core a row takes
2.8 ms and eight take 4.5; in float32, in either layout, at least 5 and 15.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inference.ops.halves import LARGEST_HALF, HalfRows, has_halves


def pack_head(stored: Tensor, dtype: torch.dtype) -> HalfRows | None:
    """`stored` is V×H. None if packing would lose precision, or if PyTorch cannot multiply by halves."""
    if dtype != torch.float32 or not has_halves(stored.device):
        return None
    if stored.dtype not in (torch.bfloat16, torch.float16):
        return None
    least, largest = stored.aminmax()
    if max(-float(least), float(largest)) > LARGEST_HALF:
        return None
    return HalfRows(stored)
