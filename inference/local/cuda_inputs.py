"""A step's sequences as tensors on the device: one copy of numbers, and tables that are kept there.

In go parts, out come the pages and tokens that the model takes. The numbers of a step travel in one tensor,
whose layout follows from two counts, so that a recorded step reads them where it was told to. Of a slot's
table only what is new is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.local.cuda_picker import to_device
from inference.local.scheduling.step import Part
from inference.ops.pages import Pages


@dataclass(frozen=True, slots=True)
class StepShape:
    """All that the layout of a step's numbers, and which kernels run, depend on."""

    rows: int
    sequences: int
    decodes: int
    longest: int

    def length(self, kinds: int) -> int:
        return (2 + kinds) * self.rows + 3 * self.sequences + 1


@dataclass(frozen=True, slots=True)
class Inputs:
    tokens: Tensor
    positions: Tensor
    slots: list[Tensor]  # by kind
    lengths: Tensor
    starts: Tensor
    owners: Tensor  # by sequence: its slot in the engine


def shape_of(parts: Sequence[Part]) -> StepShape:
    """Of parts in order: those with one token first."""
    counts = [len(part.tokens) for part in parts]
    return StepShape(sum(counts), len(counts), counts.count(1), max(counts))


def filled_up(sequences: int) -> StepShape:
    """Of a step in which each of so many sequences has one token, or is none."""
    return StepShape(sequences, sequences, sequences, 1)


def numbers_of(
    parts: Sequence[Part], shape: StepShape, kinds: int, block_size: int, nobody: int
) -> list[int]:
    """Rows and sequences that only fill up the shape write to block 0, read nothing, and are `nobody`'s."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[list[int]] = [[] for _ in range(kinds)]
    lengths, starts, owners = [], [0], []
    for part in parts:
        end = part.start + len(part.tokens)
        places = range(part.start, end)
        tokens += part.tokens
        positions += places
        for own, table in zip(slots, part.tables, strict=True):
            own += [table[at // block_size] * block_size + at % block_size for at in places]
        lengths.append(end)
        starts.append(starts[-1] + len(part.tokens))
        owners.append(part.slot)
    rows, sequences = shape.rows - len(tokens), shape.sequences - len(parts)
    starts += range(starts[-1] + 1, starts[-1] + 1 + sequences)
    return [
        *tokens, *[0] * rows, *positions, *[0] * rows,
        *(slot for own in slots for slot in (*own, *[0] * rows)),
        *lengths, *[0] * sequences, *starts, *owners, *[nobody] * sequences,
    ]  # fmt: skip


def inputs_of(numbers: Tensor, shape: StepShape, kinds: int) -> Inputs:
    """The numbers by name, on whatever device they are."""
    sizes = [*[shape.rows] * (2 + kinds), shape.sequences, shape.sequences + 1, shape.sequences]
    tokens, positions, *rest = torch.split_with_sizes(numbers, sizes)
    lengths, starts, owners = rest[kinds:]
    return Inputs(tokens, positions, list(rest[:kinds]), lengths.int(), starts.int(), owners)


class Tables:
    """Each slot's blocks, for each kind of layer, and one row of zeros for nobody."""

    def __init__(self, slots: int, width: int, kinds: int, device: torch.device) -> None:
        self.nobody = slots
        self._device, self._width = device, width
        self._rows = [torch.zeros(slots + 1, width, dtype=torch.int32, device=device) for _ in range(kinds)]
        self._known: list[list[list[int]]] = [[[] for _ in range(slots)] for _ in range(kinds)]

    def update(self, parts: Sequence[Part]) -> None:
        for kind, (rows, known) in enumerate(zip(self._rows, self._known, strict=True)):
            places: list[int] = []
            blocks: list[int] = []
            for part in parts:
                table, before = list(part.tables[kind]), known[part.slot]
                same = len(before) if table[: len(before)] == before else 0
                if same < len(table):
                    first = part.slot * self._width
                    places += range(first + same, first + len(table))
                    blocks += table[same:]
                known[part.slot] = table
            if places:
                news = to_device(torch.tensor([places, blocks], dtype=torch.int64), self._device)
                rows.view(-1).index_copy_(0, news[0], news[1].int())

    def pages(
        self, inputs: Inputs, shape: StepShape, windows: Sequence[int | None], block_size: int
    ) -> list[Pages]:
        return [
            Pages(
                tables=rows.index_select(0, inputs.owners),
                lengths=inputs.lengths,
                starts=inputs.starts,
                slots=slots,
                window=window,
                block_size=block_size,
                decodes=shape.decodes,
                longest=shape.longest,
            )
            for rows, slots, window in zip(self._rows, inputs.slots, windows, strict=True)
        ]
