"""The head on a CPU: by far the largest matrix of a small model, read in full for every token.

Takes rows that have passed all layers and returns their logits in float32. Weights stored in 16 bits stay in
16 bits, in the order in which FBGEMM reads them: it widens them while reading and sums in float32. For
201,088 × 128 on one core a row takes 2.8 ms and eight take 4.5; in float32, in either layout, at least 5 and
15.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGEST_HALF = 65_504.0
# Rows packed together. FBGEMM packs column by column: more rows leave the processor's second cache between
# two columns, and packing takes more than twice as long (65,536: 0.9 s for 201,088 × 320; 8,192: 0.4). Fewer
# make products slower, as each call costs some 10 µs; with these a row takes no longer than with 65,536,
# because the allocator reuses the parts' results instead of taking new pages for every row.
ROWS_AT_ONCE = 8192


class PackedHead:
    """Half precision holds bf16 exactly from 6e-5 upwards; below that the error is at most 3e-8."""

    def __init__(self, stored: Tensor) -> None:
        """`stored`: V×H."""
        wide = torch.empty(min(ROWS_AT_ONCE, len(stored)), stored.shape[1])  # one buffer for all parts
        self._packed: list[Any] = [
            torch.ops.quantized.linear_prepack_fp16(wide[: len(part)].copy_(part), None)
            for part in torch.split(stored, ROWS_AT_ONCE)
        ]

    def logits(self, x: Tensor) -> Tensor:
        """x R×H; returns R×V."""
        product = torch.ops.quantized.linear_dynamic_fp16.default
        parts: list[Tensor] = [product(x, packed) for packed in self._packed]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def pack_head(stored: Tensor, dtype: torch.dtype) -> PackedHead | None:
    """None if packing would lose precision, or if PyTorch has no FBGEMM (on processors other than x86)."""
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
