"""The head on a CPU: by far the largest matrix of a small model, and read whole for every token.

In go rows that have passed all layers, out come their logits in float32. Weights that are stored in 16 bits
are kept in 16 bits, in the order in which FBGEMM reads them: it widens them on the way and adds in float32.
For 201,088 × 128 on one core a row takes 2.8 ms and eight take 4.5; in float32, whichever way the matrix
lies, at least 5 and 15.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGEST_HALF = 65_504.0


class PackedHead:
    """Half precision holds bf16 exactly from 6e-5 on; below that it is off by 3e-8 at most."""

    def __init__(self, stored: Tensor) -> None:
        """`stored`: V×H."""
        self._packed: Any = torch.ops.quantized.linear_prepack_fp16(stored.float(), None)

    def logits(self, x: Tensor) -> Tensor:
        """R×V of R×H."""
        found: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed)
        return found


def pack_head(stored: Tensor, dtype: torch.dtype) -> PackedHead | None:
    """None where it would lose something, or where PyTorch has no FBGEMM (on other processors than x86)."""
    if dtype != torch.float32 or stored.device.type != "cpu" or "fbgemm" not in _engines():
        return None
    if stored.dtype not in (torch.bfloat16, torch.float16):
        return None
    least, largest = stored.aminmax()
    if max(-float(least), float(largest)) > LARGEST_HALF:
        return None
    return PackedHead(stored)


def _engines() -> list[str]:
    return list(torch.backends.quantized.supported_engines)
