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
# Rows packed together at first. FBGEMM packs column by column: more rows leave the processor's second cache
# between two columns, and packing takes three times as long (201,088 × 320: 4,096 rows 0.3 s, 65,536 0.9).
ROWS_AT_ONCE = 4096
# Weights of the parts that replace these when there is time: each call costs 10 to 30 µs, which is much for
# small parts. With 65,536 rows of 320 a step of one row takes 5 to 20 % less.
MERGED_WEIGHTS = 21_000_000


class PackedHead:
    """Half precision holds bf16 exactly from 6e-5 upwards; below that the error is at most 3e-8."""

    def __init__(self, stored: Tensor) -> None:
        """`stored`: V×H."""
        wide = torch.empty(min(ROWS_AT_ONCE, len(stored)), stored.shape[1])  # one buffer for all parts
        self._packed: list[Any] = [
            _packed(wide[: len(part)].copy_(part)) for part in torch.split(stored, ROWS_AT_ONCE)
        ]
        together = max(1, MERGED_WEIGHTS // stored.shape[1] // ROWS_AT_ONCE)  # parts
        self._to_merge = (
            [] if together == 1 or len(self._packed) == 1 else [*torch.split(stored, together * ROWS_AT_ONCE)]
        )
        self._together, self._merged = together, 0

    def merge(self) -> bool:
        """Packs some parts again as one, for the same results in less time; returns whether more are left."""
        if self._to_merge:
            rows = self._to_merge.pop(0)
            self._packed[self._merged : self._merged + self._together] = [_packed(rows.float())]
            self._merged += 1
        return bool(self._to_merge)

    def logits(self, x: Tensor) -> Tensor:
        """x R×H; returns R×V."""
        product = torch.ops.quantized.linear_dynamic_fp16.default
        parts: list[Tensor] = [product(x, packed) for packed in self._packed]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _packed(rows: Tensor) -> Any:
    return torch.ops.quantized.linear_prepack_fp16(rows, None)


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
