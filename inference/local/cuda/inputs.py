"""A step's sequences as tensors on the device: one copy of numbers per step, and tables that stay there.

The numbers of a step travel in one tensor, whose layout two counts determine, so that a recorded step finds
each number in its place. Of a slot's table only new entries are sent. Smaller steps are padded to recorded
ones: those in which every sequence has one token are recorded up to their logits, others to the last layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import numpy.typing
import torch
from torch import Tensor

from inference.local.cuda.picker import to_device
from inference.local.scheduling.step import StepPart
from inference.ops.pages import Pages

IntArray = numpy.typing.NDArray[numpy.int64]
Numbers = Sequence[int] | IntArray
PROMPTS = 8  # the most in one recorded step
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
# Rows of prompts in a step without decodes; below, rows and decodes of a mixed step.
PROMPT_ROWS = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MIXED_ROWS = (64, 128, 256, 512)
MIXED_DECODES = (4, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class StepShape:
    """Determines the layout of a step's numbers and the kernels that run."""

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
    slots: list[Tensor]  # one for each kind of layer
    lengths: Tensor
    starts: Tensor
    owners: Tensor  # each sequence's slot in the engine


def is_prompt(part: StepPart) -> bool:
    """Whether its tokens are one sequence of a step, not rows of their own."""
    return len(part.tokens) > 1 and part.samples <= 1


def single_rows(parts: Sequence[StepPart]) -> list[StepPart]:
    """The same parts, with drafts as parts of their own.

    A draft's row sees the keys of the rows before it, which a step writes before it reads any. So a step that
    checks drafts is a step of single tokens, with its kernels and its recorded sizes.
    """
    rows: list[StepPart] = []
    for part in parts:
        if is_prompt(part) or len(part.tokens) == 1:
            rows.append(part)
            continue
        for at, token in enumerate(part.tokens, part.start):
            rows.append(StepPart(part.slot, (token,), at, part.tables, 1, part.picker))
    return rows


def step_shape(parts: Sequence[StepPart]) -> StepShape:
    """The shape of ordered parts: those with one token come first."""
    counts = [len(part.tokens) for part in parts]
    return StepShape(sum(counts), len(counts), counts.count(1), max(counts))


def step_numbers(
    parts: Sequence[StepPart], shape: StepShape, kinds: int, block_size: int, padding: int
) -> IntArray:
    """The step's numbers, padded to the shape. Parts with one token come first.

    Padding rows and sequences have the slot `padding` and write to block 0. Padding among the sequences with
    one token reads no keys; unused rows of prompts read the keys that they wrote.
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
    slots: list[Numbers] = []
    for kind in range(kinds):
        alone, *others = _slots(decodes, prompts, kind, block_size)
        slots += [alone, nothing, *others, [0] * left]
    lengths = [part.start + len(part.tokens) for part in prompts] + [0] * unused
    counts = [len(part.tokens) for part in prompts] + [0] * unused
    if unused:
        lengths[-1] = counts[-1] = left
    starts = numpy.cumsum([0, *[1] * shape.decodes, *counts])
    owners = [part.slot for part in decodes] + [padding] * spare + [part.slot for part in prompts]
    pieces: list[Numbers] = [
        *tokens, *rows, *slots,
        [part.start + 1 for part in decodes], nothing, lengths, starts, owners, [padding] * unused,
    ]  # fmt: skip
    return numpy.concatenate([numpy.asarray(piece, dtype=numpy.int64) for piece in pieces])


def _slots(decodes: Sequence[StepPart], prompts: Sequence[StepPart], kind: int, size: int) -> list[Numbers]:
    """Where each row's key and value are written (block · size + offset): those of decodes, then prompts."""
    slots: list[Numbers] = [
        [part.tables[kind][part.start // size] * size + part.start % size for part in decodes]
    ]
    for part in prompts:
        places = numpy.arange(part.start, part.start + len(part.tokens))
        table = numpy.asarray(part.tables[kind], dtype=numpy.int64)
        slots.append(table[places // size] * size + places % size)
    return slots


def split_inputs(numbers: Tensor, shape: StepShape, kinds: int) -> Inputs:
    """Splits the numbers by name, on their device."""
    sizes = [*[shape.rows] * (2 + kinds), shape.sequences, shape.sequences + 1, shape.sequences]
    tokens, positions, *rest = torch.split_with_sizes(numbers, sizes)
    lengths, starts, owners = rest[kinds:]
    return Inputs(tokens, positions, list(rest[:kinds]), lengths.int(), starts.int(), owners)


class Tables:
    """Each slot's blocks in `rows` (slots × blocks) for each kind of layer; a row of zeros for padding."""

    def __init__(self, slots: int, width: int, kinds: int, device: torch.device) -> None:
        self.padding = slots
        self._device, self._width = device, width
        self.rows = [torch.zeros(slots + 1, width, dtype=torch.int32, device=device) for _ in range(kinds)]
        self._known: list[list[list[int]]] = [[[] for _ in range(slots)] for _ in range(kinds)]

    def update(self, parts: Sequence[StepPart]) -> None:
        for kind, (rows, known) in enumerate(zip(self.rows, self._known, strict=True)):
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
        own = [rows.index_select(0, inputs.owners) for rows in self.rows]
        return [
            Pages(
                tables, inputs.lengths, inputs.starts, slots, window, block_size, shape.decodes, shape.longest
            )
            for tables, slots, window in zip(own, inputs.slots, windows, strict=True)
        ]


def decode_shape(sequences: int) -> StepShape:
    """The shape of a step in which each sequence has one token or is padding."""
    return StepShape(sequences, sequences, sequences, 1)


def prompt_shape(decodes: int, rows: int) -> StepShape:
    """Up to PROMPTS prompts share `rows` beside the decodes; one more sequence, padding, takes the unused."""
    return StepShape(decodes + rows, decodes + PROMPTS + 1, decodes, rows)


def sizes_for(decodes: int) -> tuple[int, ...]:
    """The recorded numbers of rows, up to the most decodes but at most the largest of SIZES."""
    smaller = tuple(size for size in SIZES if size < decodes)
    return (*smaller, decodes) if decodes <= SIZES[-1] else SIZES


def shapes_for(decodes: int, context: int) -> tuple[StepShape, ...]:
    """All shapes to record, the largest first. `decodes`: the most in a step, a draft being one more."""
    most = min(decodes, MIXED_DECODES[-1])
    mixed = (*(count for count in MIXED_DECODES if count < most), most)
    shapes = [decode_shape(size) for size in sizes_for(decodes)]
    shapes += [prompt_shape(0, rows) for rows in PROMPT_ROWS if rows <= context]
    shapes += [prompt_shape(count, rows) for count in mixed for rows in MIXED_ROWS if rows <= context]
    return tuple(sorted(shapes, key=lambda shape: (shape.rows, shape.decodes), reverse=True))


def holding(shapes: Sequence[StepShape], shape: StepShape) -> StepShape | None:
    """The smallest of these, which are in descending order, that a shape fits into; None if there is none."""
    prompts, rows = shape.sequences - shape.decodes, shape.rows - shape.decodes
    if prompts > PROMPTS:
        return None
    fitting = (
        recorded
        for recorded in reversed(shapes)
        if recorded.decodes >= shape.decodes
        and recorded.rows - recorded.decodes >= rows
        and (recorded.sequences > recorded.decodes) == (prompts > 0)
        and (recorded.decodes > 0) == (shape.decodes > 0)
    )
    return next(fitting, None)
