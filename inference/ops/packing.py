"""MXFP4 weights in the layout for a GPU: repacked once, when they are loaded.

The 16 bytes that a lane of a warp loads are its operand of a matrix product (`inference.ops.kernels.mxfp4` is
the other half of this layout). It needs no Triton, and runs on the device that holds the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine import CheckpointError

ROWS = 16  # of a fragment
COLUMNS = 64
TILE_ROWS = 64  # rows are padded to a multiple of this: a program's tile
SCALE_BITS = 62  # added to a scale's exponent, it turns 2^-126 into 2^-64, in the bias of bf16
LARGEST_SCALE = 254 - SCALE_BITS
EXPERTS_PER_BATCH = 4  # limits the memory that repacking takes

# Where a word keeps the sign, the exponent's two bits and the mantissa of its four values; those of the next
# column are 16 bits higher. By half of the columns, then by half of the rows.
PLACES = (((15, 7, 6), (12, 4, 3)), ((9, 1, 0), (14, 10, 13)))


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The rows of every expert: words E × fragments × tiles × 32 × 4, scales E × fragments × tiles × 8."""

    words: Tensor
    scales: Tensor
    rows: int
    columns: int

    @property
    def fragments(self) -> int:
        return self.words.shape[1]

    @property
    def tiles(self) -> int:
        return self.words.shape[2]


def repack(blocks: Tensor, scales: Tensor, *, paired: bool) -> PackedRows:
    """blocks is E × R × B × 16 bytes, scales E × R × B. `paired` puts even rows above their odd ones."""
    experts, rows, count = scales.shape
    if int(scales.max()) > LARGEST_SCALE:
        raise CheckpointError(
            f"A scale of the MXFP4 weights is 2^{int(scales.max()) - 127}; "
            f"the largest that the GPU kernels support is 2^{LARGEST_SCALE - 127}."
        )
    batches = (slice(at, at + EXPERTS_PER_BATCH) for at in range(0, experts, EXPERTS_PER_BATCH))
    parts = [_repack_batch(blocks[some], scales[some], paired) for some in batches]
    words, packed_scales = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return PackedRows(words, packed_scales, rows, 32 * count)


def _repack_batch(blocks: Tensor, scales: Tensor, paired: bool) -> tuple[Tensor, Tensor]:
    experts, rows, count = scales.shape
    codes = torch.stack((blocks & 15, blocks >> 4), -1).view(experts, rows, 32 * count)
    more_rows, more_columns = -rows % TILE_ROWS, -32 * count % COLUMNS
    codes = functional.pad(codes, (0, more_columns, 0, more_rows))
    scales = functional.pad(scales, (0, more_columns // 32, 0, more_rows))
    return _words(_in_fragments(codes, paired)), _scale_words(_in_fragments(scales, paired))


def _in_fragments(rows: Tensor, paired: bool) -> Tensor:
    """Reshapes E × R × C to E × fragments × 2 halves × 8 × C."""
    experts, count, columns = rows.shape
    if paired:
        return rows.view(experts, count // ROWS, 8, 2, columns).transpose(2, 3)
    return rows.view(experts, count // ROWS, 2, 8, columns)


def _words(codes: Tensor) -> Tensor:
    experts, fragments, _, _, columns = codes.shape
    # half of the rows, g, tile of 64, tile of 16, half of its columns, t, column of the pair
    parts = codes.view(experts, fragments, 2, 8, columns // COLUMNS, 4, 2, 4, 2)
    size = (experts, fragments, 8, columns // COLUMNS, 4, 4)
    words = torch.zeros(size, dtype=torch.int32, device=codes.device)
    for column_half, by_row in enumerate(PLACES):
        for row_half, (sign, exponent, mantissa) in enumerate(by_row):
            for pair in range(2):
                code = parts[:, :, row_half, :, :, :, column_half, :, pair].int()
                placed = (code >> 3) << sign | (code >> 1 & 3) << exponent | (code & 1) << mantissa
                words |= placed << 16 * pair
    # fragment, tile, lane (g, t), tile of 16
    return words.permute(0, 1, 3, 2, 5, 4).reshape(experts, fragments, columns // COLUMNS, 32, 4)


def _scale_words(scales: Tensor) -> Tensor:
    """A word holds, from its low byte: both blocks of row g, both of row g + 8."""
    experts, fragments, _, _, count = scales.shape
    exponents = scales.view(experts, fragments, 2, 8, count // 2, 2).int() + SCALE_BITS
    words = torch.zeros(experts, fragments, 8, count // 2, dtype=torch.int32, device=scales.device)
    for half in range(2):
        for block in range(2):
            words |= exponents[:, :, half, :, :, block] << (16 * half + 8 * block)
    return words.transpose(2, 3).contiguous()
