"""`sampling.sample` as kernels for a GPU: the same arguments, the same distribution, without waiting for it.

A row that sets only a temperature costs one pass over its logits. The plain op computes log-probabilities.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from inference.ops.kernels import sampling as kernels
from inference.ops.sampling import Picking, log_probabilities

CHUNK = 4096

__all__ = ["log_probabilities", "sample"]


def sample(logits: Tensor, picking: Picking) -> Tensor:
    """Takes R×V float32, unchanged; returns R tokens, -1 where the largest logit is not finite."""
    rows, vocabulary = logits.shape
    adjusts, masks = picking.adjustments is not None, picking.masks is not None
    chunks = triton.cdiv(vocabulary, CHUNK)
    adjusted = torch.empty_like(logits) if adjusts or masks else logits
    peaks, weights = torch.empty(2, rows, chunks, dtype=torch.float32, device=logits.device)
    places = torch.empty(rows, chunks, dtype=torch.int32, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    kernels.survey[(rows, chunks)](
        logits, adjusted, picking.adjustments, picking.adjustment_of, picking.masks, picking.mask_of,
        picking.temperature, peaks, places, weights,
        vocabulary, 0 if picking.masks is None else picking.masks.shape[1], logits.stride(0), chunks,
        HAS_ADJUSTMENTS=adjusts, HAS_MASKS=masks, CHUNK=CHUNK, num_warps=8,
    )  # fmt: skip
    kernels.draw[(rows,)](
        adjusted, peaks, places, weights, picking.temperature, picking.top_k, picking.top_p, picking.min_p,
        picking.points, tokens, vocabulary, adjusted.stride(0), chunks,
        CHUNK=CHUNK, CHUNKS=triton.next_power_of_2(chunks), num_warps=8,
    )  # fmt: skip
    return tokens
