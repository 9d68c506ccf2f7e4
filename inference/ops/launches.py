"""How kernels are launched: the one place for the numbers that a card decides, and not the model.

A result does not depend on them but for the order of its sums. Kernels' own files say what they mean there.
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
    """One of the two products of a layer's experts, for tiles of so many pairs of token and expert."""

    fragments: int  # of 16 weight rows, that a program has
    warps: int
    stages: int  # how many turns of its loop are asked for at once, and one less
    by_columns: bool  # whether the warps share out the columns, not the rows: for few pairs
    unroll: int = 1  # turns that are written out, where the warps share out the columns
    splits: int = 1  # programs among which the columns are shared out: for the second product alone

    @property
    def sharers(self) -> int:
        return self.warps if self.by_columns else 0


@dataclass(frozen=True, slots=True)
class Rotated:
    """Queries, keys and values of few rows."""

    half: int  # pairs of one head's numbers that a program has
    columns: int  # that a warp takes at once
    warps: int  # each has columns of its own
    stages: int


@dataclass(frozen=True, slots=True)
class RotatedWhole:
    """Queries, keys and values of one row or two: whole weight rows at once."""

    half: int
    warps: int


@dataclass(frozen=True, slots=True)
class Routed:
    part: int  # experts that a program has
    columns: int  # that it takes at a time
    warps: int


@dataclass(frozen=True, slots=True)
class Experts:
    """Tiles of so many pairs of token and expert, and both products of them."""

    tokens: int
    gate_up: Product
    down: Product


# The numbers below were the quickest of some 170 that were tried on an H100 (Triton 3.6.0), of those that
# were right. Eight warps of eight fragments by rows were not: their sums were others, now and then infinite.

# A step of one token: no expert has two pairs.
ALONE = Experts(8, Product(2, 2, 3, True, unroll=3), Product(1, 2, 4, True, unroll=3))

# Up to how many pairs an expert may have in the mean, and what is launched then: a tile is about what it has.
BY_PAIRS = (
    (2.0, Experts(8, Product(2, 4, 4, True), Product(2, 4, 3, True, unroll=2))),
    (12.0, Experts(16, Product(8, 4, 4, False), Product(4, 4, 4, False))),
    (24.0, Experts(32, Product(4, 4, 4, False), Product(4, 4, 4, False))),
    (96.0, Experts(64, Product(8, 4, 4, False), Product(8, 4, 4, False))),
    (math.inf, Experts(128, Product(8, 4, 3, False), Product(4, 4, 3, False))),
)

QKV = Rotated(half=16, columns=32, warps=4, stages=5)
QKV_WHOLE = RotatedWhole(half=2, warps=4)
ROUTE_FEW = Routed(part=2, columns=4096, warps=8)
ROUTE = Routed(part=8, columns=1024, warps=8)
_FEW = 16  # rows: at 8 the first takes half the time of the second, at 64 a quarter more
SORTED_AT_ONCE = 32  # pairs that are compared with all pairs at once


@functools.cache
def early() -> dict[str, bool]:
    """For launches that may begin before the one ahead has ended (`kernels.early`): on cards that can."""
    if PLAIN:
        return {"EARLY": False}
    able = not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (9, 0)
    return {"EARLY": able, "launch_pdl": able}


def of_routes(tokens: int) -> Routed:
    return ROUTE_FEW if tokens <= _FEW else ROUTE


def of_experts(tokens: int, pairs: int, experts: int) -> Experts:
    if tokens == 1:
        return ALONE
    return next(how for most, how in BY_PAIRS if pairs <= most * experts)
