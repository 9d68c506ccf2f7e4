"""Random weights and rows for the kernels' tests: never zero, and of the same scale as in models."""

from collections.abc import Sequence

import torch
from torch import Tensor

from inference.ops import reference
from inference.ops.pages import Pages


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """NaN and infinities never pass."""
    error = float((found.double() - wanted.double()).norm() / wanted.double().norm())
    return error if error == error else float("inf")


class Draw:
    """Random tensors on a device: bf16 on a GPU, float32 where kernels are interpreted."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        self.dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        self.tolerance = 1e-5 if device.type == "cpu" else 1e-2
        self._generator = torch.Generator().manual_seed(seed)

    def rows(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=self._generator) * scale).to(self.device, self.dtype)

    def memory(self, blocks: int, size: int, kv_heads: int, dims: int) -> Tensor:
        """blocks × size × K × D, with each head's keys adjacent, as in models."""
        return self.rows(kv_heads, blocks, size, dims).permute(1, 2, 0, 3)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self._generator)

    def mxfp4(self, experts: int, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """Blocks, scales, biases."""
        blocks = self.integers(0, 256, experts, rows, columns // 32, 16).to(torch.uint8)
        scales = self.integers(118, 126, experts, rows, columns // 32).to(torch.uint8)
        return blocks.to(self.device), scales.to(self.device), self.rows(experts, rows)

    def choices(self, tokens: int, experts: int, per_token: int) -> tuple[Tensor, Tensor]:
        """Distinct experts for each token, and shares that add up to 1."""
        order = torch.rand(tokens, experts, generator=self._generator).argsort(1)[:, :per_token]
        shares = torch.softmax(torch.randn(tokens, per_token, generator=self._generator), 1)
        return order.contiguous().to(self.device), shares.to(self.device)


def random_pages(draw: Draw, queries: Sequence[int], window: int | None, size: int, past: int = 40) -> Pages:
    """Sequences with the given numbers of queries and up to `past` keys before them, in scattered blocks."""
    befores = draw.integers(0, past + 1, len(queries)).tolist()
    lengths = [before + count for before, count in zip(befores, queries, strict=True)]
    needed = [-(-length // size) for length in lengths]
    order = (torch.randperm(sum(needed) + 3, generator=draw._generator) + 1).tolist()
    tables = torch.zeros(len(queries), max(needed) + 1, dtype=torch.int32)
    slots: list[int] = []
    for at, (before, length, count) in enumerate(zip(befores, lengths, needed, strict=True)):
        blocks = [order.pop() for _ in range(count)]
        slots += [blocks[position // size] * size + position % size for position in range(before, length)]
        gone = 0 if window is None else max(0, before - window + 1) // size
        tables[at, gone:count] = torch.tensor(blocks[gone:], dtype=torch.int32)
    starts = torch.tensor([0, *queries]).cumsum(0)
    return Pages(
        tables=tables.to(draw.device),
        lengths=torch.tensor(lengths, dtype=torch.int32, device=draw.device),
        starts=starts.to(draw.device, torch.int32),
        slots=torch.tensor(slots, dtype=torch.int64, device=draw.device),
        window=window,
        block_size=size,
        decodes=sum(count == 1 for count in queries),
        longest=max(queries),
    )


Packed = tuple[Tensor, Tensor, Tensor]  # blocks, scales, biases


def mxfp4_experts(
    x: Tensor, chosen: Tensor, shares: Tensor, first: Packed, second: Packed, limit: float, alpha: float
) -> Tensor:
    """The output of a layer's experts in their stored form, for kernels that never unpack them.

    x is T×H, chosen and shares T×k. `first` holds blocks E × 2I × H/32 × 16 and scales E × 2I × H/32 (bytes)
    and biases E × 2I; `second` the same for H × I. Returns T×H.
    """
    out = torch.zeros_like(x)
    for number in sorted(set(chosen.flatten().tolist())):
        tokens, places = (chosen == number).nonzero(as_tuple=True)
        (w1, b1), (w2, b2) = (
            (reference.dequantise_mxfp4(blocks[number], scales[number], x.dtype), biases[number])
            for blocks, scales, biases in (first, second)
        )
        result = reference.expert(x[tokens], w1, b1, w2, b2, limit, alpha)
        out.index_add_(0, tokens, result * shares[tokens, places].unsqueeze(1))
    return out
