"""Where the keys and values of a batch lie: the one description that every op on paged memory takes.

Takes a step's sequences as tensors on the device that runs the ops, and returns them as Python numbers to the
ops that run on the CPU. It must not know which sequence owns a block, nor what a key means.

The memory of a layer is two tensors, keys and values, each of the shape blocks × size × K × D; the runner
chooses the strides (on the CPU the keys of one head are contiguous). A block holds `size` consecutive
positions. Block 0 belongs to no sequence: unused entries of a table name it, and padding rows write to it. A
sequence's table names its blocks in order: the key of position p is at `[table[p // size], p % size]`. On
layers with a window, the entries before it may be 0: no op reads a key that no query of the step sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

BLOCK_SIZE = 16
# Gathering keys costs a copy; attending to sequences one by one costs about forty calls for each.
LEAST_TOGETHER, GATHERED_KEYS = 2, 4096


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence of a batch as numbers. Rows [start, end) are its queries, the last of its positions."""

    start: int
    end: int
    length: int
    first: int  # the first position that one of its queries sees
    blocks: list[int]  # hold positions first to length - 1
    run: bool  # the blocks follow each other in memory

    @property
    def queries(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Together:
    """Sequences with one query each, for the CPU, with few enough keys to gather them into one tensor."""

    lengths: list[int]
    blocks: Tensor  # B·M: the blocks that each sequence's query sees, padded with block 0
    hidden: Tensor  # B × M·size: true where the query must not see the key


@dataclass(frozen=True)
class Pages:
    """The T rows of B sequences, for all layers of one window. Sequences with one query come first."""

    tables: Tensor  # B × M, int32: each sequence's blocks in order
    lengths: Tensor  # B, int32: keys of each sequence, those of this step included; 0 for padding
    # B + 1, int32: rows starts[b] to starts[b + 1] are the queries of sequence b, its newest tokens
    starts: Tensor
    slots: Tensor  # T, int64: where each row's own key and value go: block · size + offset
    window: int | None  # how many keys a query sees, its own included; None: all
    block_size: int
    decodes: int  # how many sequences, the first ones, have one query each
    longest: int  # the most queries of one sequence
    # For the CPU, from a runner that has the tables as lists; `tables` may then be empty.
    given_spans: tuple[Span, ...] | None = None

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The sequences, computed once for all layers. For the CPU: it waits for the device."""
        if self.given_spans is not None:
            return self.given_spans
        starts, lengths, tables = self.starts.tolist(), self.lengths.tolist(), self.tables.tolist()
        return tuple(
            span(starts[at], starts[at + 1], lengths[at], tables[at], self.window, self.block_size)
            for at in range(len(lengths))
        )

    @cached_property
    def together(self) -> Together | None:
        """The first sequences, if attending to them as one is faster; computed once for all layers."""
        decodes = self.spans[: self.decodes]
        widest = max((len(each.blocks) for each in decodes), default=0)
        if len(decodes) < LEAST_TOGETHER or len(decodes) * widest * self.block_size > GATHERED_KEYS:
            return None
        blocks = [block for each in decodes for block in each.blocks + [0] * (widest - len(each.blocks))]
        on, size = self.slots.device, self.block_size  # the device may be a GPU without kernels
        places = torch.arange(widest * size, device=on).unsqueeze(0)
        begins = torch.tensor([[each.first % size] for each in decodes], device=on)
        lengths = torch.tensor([[each.length - each.first] for each in decodes], device=on)
        hidden = (places < begins) | (places >= begins + lengths)
        return Together([each.length for each in decodes], torch.tensor(blocks, device=on), hidden)


def span(start: int, end: int, length: int, table: Sequence[int], window: int | None, size: int) -> Span:
    first = 0 if window is None else max(0, length - (end - start) - window + 1)
    blocks = list(table[first // size : -(-length // size)])
    run = not blocks or blocks == list(range(blocks[0], blocks[0] + len(blocks)))
    return Span(start, end, length, first, blocks, run)


def alone(length: int, queries: int, table: Tensor, window: int | None, block_size: int) -> Pages:
    """The pages of one sequence with `length` positions and `queries` queries, on the table's device."""
    positions = torch.arange(length - queries, length, device=table.device)
    blocks = table[positions // block_size].long()
    return Pages(
        tables=table.unsqueeze(0),
        lengths=torch.tensor([length], dtype=torch.int32, device=table.device),
        starts=torch.tensor([0, queries], dtype=torch.int32, device=table.device),
        slots=blocks * block_size + positions % block_size,
        window=window,
        block_size=block_size,
        decodes=int(queries == 1),
        longest=queries,
    )
