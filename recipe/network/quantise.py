"""MXFP4 for the experts: exact packing, and rounding with a straight-through gradient for training."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

BLOCK = 32
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = torch.tensor(VALUES)
_BORDERS = torch.tensor([(a + b) / 2 for a, b in pairwise(VALUES)])


def _scaled(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of 32 along the last dimension, divided by powers of two, and their exponents."""
    blocks = weight.detach().float().reshape(*weight.shape[:-1], -1, BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    # The smallest power for which the block exceeds the largest value, 6, by no more than rounding removes.
    exponent = torch.ceil(torch.log2(largest / 7.0))
    return blocks / torch.exp2(exponent), exponent


def pack(weight: Tensor) -> tuple[Tensor, Tensor]:
    """MXFP4 of `weight`: blocks (inputs / 32 x 16 bytes, low nibble first) and scales (exponent + 127)."""
    scaled, exponent = _scaled(weight)
    codes = torch.bucketize(scaled.abs(), _BORDERS.to(weight.device)).to(torch.uint8)
    codes |= (scaled < 0).to(torch.uint8) << 3
    blocks = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return blocks, (exponent.squeeze(-1) + 127).to(torch.uint8)


def unpack(blocks: Tensor, scales: Tensor) -> Tensor:
    """The values of MXFP4 `blocks` and `scales`, as float32."""
    table = torch.tensor([*VALUES, *(-value for value in VALUES)], device=blocks.device)
    nibbles = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    values = table[nibbles.long()] * torch.exp2(scales.float() - 127).unsqueeze(-1)
    return values.flatten(-2)


def straight_through(weight: Tensor) -> Tensor:
    """`weight` rounded to MXFP4; gradients pass as if it were not."""
    scaled, exponent = _scaled(weight)
    table, borders = (part.to(weight.device) for part in (_VALUES, _BORDERS))
    rounded = table[torch.bucketize(scaled.abs(), borders)] * scaled.sign() * torch.exp2(exponent)
    return weight + (rounded.flatten(-2) - weight).detach()
