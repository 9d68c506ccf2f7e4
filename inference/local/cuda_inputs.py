"""A step's sequences as tensors on the device: one copy of numbers, and tables that are kept there.

In go parts, out come the pages and tokens that the model takes. The numbers of a step travel in one tensor,
whose layout follows from two counts, so that a recorded step reads them where it was told to. Of a slot's
table only what is new is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import numpy.typing
import torch
from torch import Tensor

from inference.local.cuda_picker import to_device
from inference.local.scheduling.step import Part
from inference.ops.pages import Pages

IntArray = numpy.typing.NDArray[numpy.int64]
Numbers = Sequence[int] | IntArray

PROMPTS = 8  # in one recorded step, at most


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


def filled_up_with_prompts(decodes: int, rows: int) -> StepShape:
    """Beside so many sequences with one token up to PROMPTS prompts, with so many rows at most.

    One sequence more, nobody's, has the rows that are left over.
    """
    return StepShape(decodes + rows, decodes + PROMPTS + 1, decodes, rows)


def numbers_of(parts: Sequence[Part], shape: StepShape, kinds: int, block_size: int, nobody: int) -> IntArray:
    """The step's numbers, filled up to the shape. Parts with one token come first.

    Rows and sequences that only fill up are `nobody`'s: they write to block 0. Those among the sequences with
    one token read nothing; what is left over of the prompts' rows reads what it wrote.
    """
    decodes = [part for part in parts if len(part.tokens) == 1]
    prompts = parts[len(decodes) :]
    spare = shape.decodes - len(decodes)
    left = shape.rows - shape.decodes - sum(len(part.tokens) for part in prompts)
    unused = shape.sequences - shape.decodes - len(prompts)
    nothing = [0] * spare
    rows = [
        [part.start for part in decodes], nothing,
        *(range(part.start, part.start + len(part.tokens)) for part in prompts), range(left),
    ]  # fmt: skip
    tokens = [*(part.tokens for part in decodes), nothing, *(part.tokens for part in prompts), [0] * left]
    slots = [_slots(decodes, prompts, kind, block_size, spare, left) for kind in range(kinds)]
    lengths = [part.start + len(part.tokens) for part in prompts] + [0] * unused
    counts = [len(part.tokens) for part in prompts] + [0] * unused
    if unused:
        lengths[-1] = counts[-1] = left
    starts = numpy.cumsum([0, *[1] * shape.decodes, *counts])
    owners = [part.slot for part in decodes] + [nobody] * spare + [part.slot for part in prompts]
    pieces: list[Numbers] = [
        *tokens, *rows, *(piece for own in slots for piece in own),
        [part.start + 1 for part in decodes], nothing, lengths, starts, owners, [nobody] * unused,
    ]  # fmt: skip
    return numpy.concatenate([numpy.asarray(piece, dtype=numpy.int64) for piece in pieces])


def _slots(
    decodes: Sequence[Part], prompts: Sequence[Part], kind: int, block_size: int, spare: int, left: int
) -> list[Numbers]:
    """Where each row's key and value go: block · size + offset."""
    alone = [
        part.tables[kind][part.start // block_size] * block_size + part.start % block_size for part in decodes
    ]
    found: list[Numbers] = [alone, [0] * spare]
    for part in prompts:
        places = numpy.arange(part.start, part.start + len(part.tokens))
        table = numpy.asarray(part.tables[kind], dtype=numpy.int64)
        found.append(table[places // block_size] * block_size + places % block_size)
    return [*found, [0] * left]


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
