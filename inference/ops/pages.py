"""Where the keys and values of a batch lie: the one description that every op on paged memory takes.

Takes a step's sequences as tensors on the device that runs the ops, and returns them as Python numbers to the
ops that run on the CPU. It must not know which sequence owns a block, nor what a key means.

A layer's keys and values are two tensors of blocks × size × K × D, whose strides the runner chooses. A block
holds `size` consecutive positions; block 0 belongs to no sequence, and padding rows write to it. The key of
position p is at `[table[p // size], p % size]`. Entries before a layer's window may be 0: no op reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

BLOCK_SIZE, BLOCK_SIZE_ON_GPU = 16, 64
# Gathering keys costs a copy; attending to sequences one by one costs a dozen calls for each, which hardly
# matter where a sequence is long. So few keys stay in a processor's cache until they are used.
GATHERED_KEYS, LONGEST_GATHERED = 4096, 512


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
class Gathered:
    """Short sequences with one query each, rows [start, end), for the CPU: B sequences, L places for each."""

    start: int
    end: int
    places: Tensor  # B·L: where the keys lie that each query sees, then its own newest one again and again
    hiding: Tensor  # B × 1 × L: what to add to scores, 0 for keys and -inf for repeated ones


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
    first: int = 0  # no query sees an earlier position; above 0 only where each sequence has one query
    # For the CPU, from a runner that has the tables as lists; `tables` may then be empty.
    given_spans: tuple[Span, ...] | None = None

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The sequences, computed once for all layers. For the CPU: it waits for the device."""
        if self.given_spans is not None:
            return self.given_spans
        starts, lengths, tables = self.starts.tolist(), self.lengths.tolist(), self.tables.tolist()
        return tuple(
            span(*ends, length, table, self.window, self.block_size, self.first)
            for ends, length, table in zip(pairwise(starts), lengths, tables, strict=True)
        )

    @cached_property
    def parts(self) -> tuple[Span | Gathered, ...]:
        """What is attended to by one product each, in the order of rows; computed once for all layers."""
        groups: list[list[Span]] = []
        widest = 0  # blocks of the last group's longest sequence
        for sequence in self.spans[: self.decodes]:
            together = max(widest, len(sequence.blocks))
            if groups and self._fit_together(groups[-1], sequence, together):
                groups[-1].append(sequence)
                widest = together
            else:
                groups.append([sequence])
                widest = len(sequence.blocks)
        decoding = (group[0] if len(group) == 1 else self._gathered(group) for group in groups)
        return (*decoding, *(sequence for sequence in self.spans[self.decodes :] if sequence.queries))

    def _fit_together(self, group: list[Span], other: Span, widest: int) -> bool:
        keys, padded = len(other.blocks), (len(group) + 1) * widest
        within = widest * self.block_size <= LONGEST_GATHERED and padded * self.block_size <= GATHERED_KEYS
        return within and padded <= 2 * (keys + sum(len(sequence.blocks) for sequence in group))

    def _gathered(self, group: list[Span]) -> Gathered:
        size, on = self.block_size, self.slots.device  # the device may be a GPU without kernels
        widest = max(1, *(len(sequence.blocks) for sequence in group))  # padding has no blocks
        blocks = [sequence.blocks + [0] * (widest - len(sequence.blocks)) for sequence in group]
        begins, ends, newest = (
            torch.tensor(column, device=on).unsqueeze(1)
            for column in zip(*(_places_within(sequence, size) for sequence in group), strict=True)
        )
        within = torch.arange(widest * size, device=on).unsqueeze(0)
        hidden = (within < begins) | (within >= ends)
        starts = torch.tensor(blocks, device=on).unsqueeze(2) * size
        places = (starts + torch.arange(size, device=on)).flatten(1)
        hiding = torch.zeros(hidden.shape, device=on).masked_fill_(hidden, -math.inf)
        seen = torch.where(hidden, newest, places).flatten()
        return Gathered(group[0].start, group[-1].end, seen, hiding.unsqueeze(1))


def _places_within(sequence: Span, size: int) -> tuple[int, int, int]:
    """Where the keys of a sequence begin and end within its blocks, and the place of the newest in memory."""
    begin = sequence.first % size
    end = begin + sequence.length - sequence.first
    newest = sequence.blocks[-1] * size + (sequence.length - 1) % size if sequence.blocks else 0
    return begin, end, newest


def span(
    start: int, end: int, length: int, table: Sequence[int], window: int | None, size: int, least: int = 0
) -> Span:
    """`least`: the first position that a query may see."""
    first = least if window is None else max(least, length - (end - start) - window + 1)
    blocks = list(table[first // size : -(-length // size)])
    run = not blocks or blocks == list(range(blocks[0], blocks[0] + len(blocks)))
    return Span(start, end, length, first, blocks, run)


def slot_range(table: Sequence[int], start: int, end: int, size: int) -> list[int]:
    """Where a sequence's keys of positions start to end - 1 lie."""
    return [table[at // size] * size + at % size for at in range(start, end)]


def pages_from_spans(spans: Sequence[Span], slots: Tensor, window: int | None, block_size: int) -> Pages:
    """For the CPU, from tables that are lists."""
    return Pages(
        tables=torch.empty(0, dtype=torch.int32),
        lengths=torch.tensor([sequence.length for sequence in spans], dtype=torch.int32),
        starts=torch.tensor([0, *(sequence.end for sequence in spans)], dtype=torch.int32),
        slots=slots,
        window=window,
        block_size=block_size,
        decodes=sum(sequence.queries == 1 for sequence in spans),
        longest=max((sequence.queries for sequence in spans), default=0),
        given_spans=tuple(spans),
    )


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
