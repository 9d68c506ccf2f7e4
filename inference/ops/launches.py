"""How kernels are launched: the one place for numbers that depend on the card, not on the model.

They change a result only through the order of its sums. The files of the kernels explain each number.
"""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass

import torch

# Triton's interpreter computes bf16 wrongly, so kernels compute in float32 there.
PLAIN = os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True, slots=True)
class Product:
    """One of the two products of a layer's experts, for tiles of one size."""

    fragments: int  # of 16 weight rows, per program
    warps: int
    stages: int  # one more than the turns of the loop whose loads are in flight
    by_columns: bool  # warps divide the columns, not the rows: for few pairs
    unroll: int = 1  # unrolled turns of the loop, with `by_columns`
    splits: int = 1  # programs that divide the columns: for the second product only

    @property
    def sharers(self) -> int:
        return self.warps if self.by_columns else 0


@dataclass(frozen=True, slots=True)
class Rotated:
    """Queries, keys and values of few rows."""

    half: int  # pairs of one head's numbers, per program
    columns: int  # per warp and turn of the loop
    warps: int  # each with its own columns
    stages: int


@dataclass(frozen=True, slots=True)
class RotatedWhole:
    """Queries, keys and values of one row or two, from whole weight rows."""

    half: int
    warps: int


@dataclass(frozen=True, slots=True)
class Whole:
    """Any other product of one row or two."""

    rows: int  # of the weights, per program
    warps: int


@dataclass(frozen=True, slots=True)
class Scaled:
    """A product with FP8 weights."""

    rows: int  # of the weights, per program
    columns: int  # per turn of the loop; with `by_columns` per warp
    warps: int
    stages: int
    by_columns: bool = False  # warps divide the columns, not the rows
    splits: int = 1  # programs that divide the columns


@dataclass(frozen=True, slots=True)
class Routed:
    part: int  # experts per program
    columns: int  # per turn of the loop
    warps: int


@dataclass(frozen=True, slots=True)
class ExpertTiles:
    """Tiles of `tokens` pairs of token and expert, and their two products."""

    tokens: int
    gate_up: Product
    down: Product


# The fastest of about 170 correct variants on an H100, then of about 60 on an H200 (Triton 3.6.0). Eight
# warps of eight fragments by rows gave wrong sums, some of them infinite.

# A step of one token: no expert has two pairs.
ALONE = ExpertTiles(8, Product(2, 2, 3, True, unroll=2), Product(1, 2, 4, True, unroll=2))

# The largest mean number of pairs per expert, and the launch for it: a tile holds about that many.
BY_PAIRS = (
    (2.0, ExpertTiles(8, Product(2, 4, 4, True), Product(2, 4, 3, True, unroll=2))),
    (12.0, ExpertTiles(16, Product(8, 4, 4, False), Product(4, 4, 4, False))),
    (24.0, ExpertTiles(32, Product(4, 4, 4, False), Product(4, 4, 4, False))),
    (96.0, ExpertTiles(64, Product(8, 4, 4, False), Product(8, 4, 4, False))),
    (math.inf, ExpertTiles(128, Product(8, 4, 3, False), Product(4, 4, 3, False))),
)

QKV = Rotated(half=16, columns=32, warps=4, stages=5)
QKV_WHOLE = RotatedWhole(half=2, warps=4)
OUT_WHOLE = Whole(rows=2, warps=4)
HEAD_WHOLE = Whole(rows=4, warps=4)
# The same with FP8 weights: twice the rows are as many bytes.
SCALED_QKV = Rotated(half=16, columns=64, warps=4, stages=5)
SCALED_QKV_WHOLE = RotatedWhole(half=4, warps=4)
SCALED_OUT_WHOLE = Whole(rows=4, warps=4)
SCALED_HEAD_WHOLE = Whole(rows=4, warps=4)
# The largest number of rows of x, and the launch for it: of a layer's products, and of the head's.
SCALED = (
    (16, Scaled(16, 64, 4, 5, by_columns=True)),
    (32, Scaled(32, 64, 4, 4, by_columns=True)),
    (64, Scaled(64, 128, 4, 4, splits=3)),
    (128, Scaled(64, 128, 4, 4, splits=3)),
)
SCALED_LARGE = (
    (16, Scaled(64, 128, 4, 4)),
    (32, Scaled(64, 128, 4, 4)),
    (64, Scaled(128, 128, 8, 4)),
    (128, Scaled(128, 128, 8, 3)),
)
LARGE_ROWS = 16_384  # of weights: enough programs without splits
ROUTE_FEW = Routed(part=2, columns=4096, warps=8)
ROUTE = Routed(part=4, columns=1024, warps=8)
_FEW = 16  # rows: at 8 ROUTE_FEW takes half the time of ROUTE, at 64 a quarter more


# How each launch overlaps with its neighbours (the bits of `kernels.early`); 0: not at all. The fastest of
# about 40 combinations on an H200, for steps of one sequence and of 64. Full overlap was slower than none.
EARLY = {
    "qkv": 1, "decode": 3, "combine": 3, "out": 3, "route": 1, "gate_up": 5, "down": 1, "gather": 2,
    "scaled": 0, "add_parts": 0, "unpack": 0,
    "place": 5, "count": 5, "rms_norm": 3, "rotate": 0, "choose": 5, "prefill": 5, "head": 0,
}  # fmt: skip


def early(launch: str) -> dict[str, int | bool]:
    """The arguments that let a launch overlap with the previous one, on cards that support it."""
    if PLAIN:
        return {"EARLY": 0}
    bits = EARLY[launch] if _overlaps() else 0
    return {"EARLY": bits, "launch_pdl": bool(bits & 1)}


@functools.cache
def _overlaps() -> bool:
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (9, 0)


def of_scaled(tokens: int, rows: int) -> Scaled:
    table = SCALED_LARGE if rows >= LARGE_ROWS else SCALED
    return next(how for most, how in table if tokens <= most)


def of_routes(tokens: int) -> Routed:
    return ROUTE_FEW if tokens <= _FEW else ROUTE


def of_experts(tokens: int, pairs: int, experts: int) -> ExpertTiles:
    if tokens == 1:
        return ALONE
    return next(how for most, how in BY_PAIRS if pairs <= most * experts)
