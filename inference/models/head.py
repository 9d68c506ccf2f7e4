"""The head on a CPU: by far the largest matrix of a small model, read in full for every token.

It stays in 16 bits. For 201,088 × 128 on one core a row takes 2.8 ms and eight take 4.5; in float32, at least
5 and 15. It is packed in small parts at the start, and again in large ones when there is time.
"""

import torch
from torch import Tensor

from inference.ops.halves import LARGEST_HALF, HalfRows, has_halves, packed

# Rows packed together at first. FBGEMM packs column by column: more rows leave the processor's second cache
# between two columns, and packing takes three times as long (201,088 × 320: 4,096 rows 0.3 s, 65,536 0.9).
ROWS_AT_ONCE = 4096
# Weights of the parts that replace these when there is time: each call costs 10 to 30 µs, which is much for
# small parts. With 65,536 rows of 320 a step of one row takes 5 to 20 % less.
MERGED_WEIGHTS = 21_000_000


class PackedHead(HalfRows):
    def __init__(self, stored: Tensor) -> None:
        """`stored`: V×H."""
        super().__init__(stored, ROWS_AT_ONCE)
        together = max(1, MERGED_WEIGHTS // self.columns // ROWS_AT_ONCE)  # parts
        is_final = together == 1 or len(self._packed) == 1
        self._to_merge = [] if is_final else [*torch.split(stored, together * ROWS_AT_ONCE)]
        self._together, self._merged = together, 0

    def merge(self) -> bool:
        """Packs some parts again as one, for the same results in less time; returns whether more are left."""
        if self._to_merge:
            rows = self._to_merge.pop(0)
            self._packed[self._merged : self._merged + self._together] = [packed(rows.float())]
            self._merged += 1
        return bool(self._to_merge)


def pack_head(stored: Tensor, dtype: torch.dtype) -> PackedHead | None:
    """`stored` is V×H. None if packing would lose precision, or if PyTorch cannot multiply by halves."""
    is_half = stored.dtype in (torch.bfloat16, torch.float16)
    if dtype != torch.float32 or not is_half or not has_halves(stored.device):
        return None
    least, largest = stored.aminmax()
    return None if max(-float(least), float(largest)) > LARGEST_HALF else PackedHead(stored)
