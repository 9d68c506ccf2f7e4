"""Ways to launch the products with FP8 weights, and the time that each takes on a card.

A variant is a product, a number of rows, and what `launches` should say. Times are those of recorded launches
over several copies of the weights, so that a layer's weights come from memory as in a model.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from inference.ops import launches
from inference.ops.launches import Rotated, RotatedWhole, Scaled, Whole
from inference.ops.pages import Pages
from inference.ops.scaled import Rows, scaled
from tests.doubles.inference.full_size import BLOCK, EPS, HEADS, HIDDEN, KV_HEADS, SIZE, weights

COPIES = {"qkv": 10, "out": 12, "head": 1}  # together more than the card's cache
TOKENS = (1, 8, 64)
RUNS, REPLAYS = 24, 8


@dataclass(frozen=True)
class Variant:
    product: str
    tokens: int
    table: str  # the name in `launches`
    how: Any

    def apply(self) -> None:
        found = getattr(launches, self.table)
        if isinstance(found, tuple):
            limit = next(most for most, _ in found if self.tokens <= most)
            value: Any = tuple((most, self.how if most == limit else how) for most, how in found)
        else:
            value = self.how
        setattr(launches, self.table, value)

    def __str__(self) -> str:
        numbers = {name: getattr(self.how, name) for name in self.how.__slots__}
        return " ".join(f"{name}={value}" for name, value in numbers.items())


def every_variant() -> Iterator[Variant]:
    for half, warps in itertools.product((2, 4, 8), (2, 4, 8)):
        yield Variant("qkv", 1, "SCALED_QKV_WHOLE", RotatedWhole(half, warps))
    for rows, warps in itertools.product((2, 4, 8), (2, 4, 8)):
        yield Variant("out", 1, "SCALED_OUT_WHOLE", Whole(rows, warps))
        yield Variant("head", 1, "SCALED_HEAD_WHOLE", Whole(rows, warps))
    for half, columns, warps, stages in (
        (16, 32, 4, 5), (16, 64, 4, 3), (16, 64, 4, 5), (8, 64, 4, 5), (8, 128, 4, 4), (16, 128, 4, 3),
        (16, 64, 8, 3), (8, 64, 8, 4),
    ):  # fmt: skip
        yield Variant("qkv", 8, "SCALED_QKV", Rotated(half, columns, warps, stages))
    for rows, columns, warps, stages in (
        (16, 64, 4, 3), (16, 64, 4, 5), (16, 128, 4, 4), (16, 64, 8, 4), (16, 128, 2, 5), (32, 64, 4, 4),
    ):  # fmt: skip
        yield Variant("out", 8, "SCALED", Scaled(rows, columns, warps, stages, by_columns=True))
    yield Variant("out", 8, "SCALED", Scaled(64, 128, 4, 4, splits=4))
    for rows, columns, warps, stages in (
        (64, 128, 4, 3), (64, 128, 4, 5), (64, 256, 4, 3), (128, 128, 4, 3), (128, 128, 8, 4), (64, 64, 4, 6),
    ):  # fmt: skip
        yield Variant("head", 8, "SCALED_LARGE", Scaled(rows, columns, warps, stages))
    for rows, columns, warps, stages, splits in (
        (64, 128, 4, 3, 2), (64, 128, 4, 4, 3), (64, 128, 4, 3, 4), (64, 64, 4, 5, 3), (64, 64, 4, 5, 6),
        (64, 256, 4, 3, 3), (128, 128, 8, 3, 3), (128, 128, 8, 3, 6), (128, 64, 4, 5, 4),
    ):  # fmt: skip
        for product in ("qkv", "out"):
            yield Variant(product, 64, "SCALED", Scaled(rows, columns, warps, stages, splits=splits))
    for rows, columns, warps, stages in (
        (64, 128, 4, 3), (64, 128, 4, 4), (128, 128, 4, 3), (128, 128, 8, 3), (128, 128, 8, 4),
        (128, 64, 8, 5), (128, 64, 4, 4), (256, 128, 8, 3),
    ):  # fmt: skip
        yield Variant("head", 64, "SCALED_LARGE", Scaled(rows, columns, warps, stages))


class Bench:
    """The products' operands on a card."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rows: dict[tuple[str, bool], list[Rows]] = {}

    def rows(self, product: str, fp8: bool) -> list[Rows]:
        if (product, fp8) not in self._rows:
            plain = [weights(product, self._device, copy) for copy in range(COPIES[product])]
            self._rows[product, fp8] = [scaled(rows) for rows in plain] if fp8 else list(plain)
        return self._rows[product, fp8]

    def call(self, product: str, tokens: int) -> Callable[[Rows], object]:
        from inference.ops import fused

        def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.randn(shape, device=self._device, dtype=dtype)

        norm = drawn(HIDDEN, dtype=torch.float32)
        x, bias = drawn(tokens, HIDDEN), drawn((HEADS + 2 * KV_HEADS) * SIZE)
        if product == "head":
            return lambda rows: fused.head_logits(
                x, norm, EPS, rows.t() if isinstance(rows, torch.Tensor) else rows
            )
        if product == "out":
            attended, residual = drawn(tokens, HEADS * SIZE), drawn(tokens, HIDDEN)
            return lambda rows: fused.project_out(attended, rows, bias[:HIDDEN], residual)
        cos, sin = drawn(tokens, SIZE, dtype=torch.float32), drawn(tokens, SIZE, dtype=torch.float32)
        memory = [drawn(KV_HEADS, 4, BLOCK, SIZE).permute(1, 2, 0, 3) for _ in range(2)]
        tables = torch.zeros(tokens, 4, dtype=torch.int32, device=self._device)
        slots = torch.arange(tokens + 1, device=self._device)
        lengths, starts = torch.ones_like(slots[1:]).int(), slots.int()
        pages = Pages(tables, lengths, starts, slots[:-1], None, BLOCK, decodes=tokens, longest=1)
        return lambda rows: fused.qkv(x, norm, EPS, rows, bias, cos, sin, *memory, pages)

    @torch.inference_mode()
    def microseconds(self, product: str, tokens: int, fp8: bool) -> float:
        """Of one call, all its kernels included."""
        call, rows = self.call(product, tokens), self.rows(product, fp8)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call(rows[0])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        runs = RUNS if len(rows) > 1 else 4
        with torch.cuda.graph(graph):
            for at in range(runs):
                call(rows[at % len(rows)])
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        begin.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / (REPLAYS * runs)


def compile_variant(variant: Variant, bench: Bench) -> None:
    """Runs it once, so that its machine code is in Triton's cache."""
    before = getattr(launches, variant.table)
    variant.apply()
    try:
        shape = weights_like(variant.product, bench._device)
        bench.call(variant.product, variant.tokens)(shape)
        torch.cuda.synchronize()
    finally:
        setattr(launches, variant.table, before)


def weights_like(product: str, device: torch.device) -> Rows:
    rows = weights("qkv" if product == "head" else product, device)
    if product == "head":  # as many rows as the head's tables are for, but fewer than a head
        rows = rows.repeat(4, 1)
    return scaled(rows)
