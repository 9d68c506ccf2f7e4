"""The sizes of steps that are recorded: smaller steps are padded to them.

Takes a step's shape and returns the recorded one that holds it. A step in which every sequence has one token
is recorded up to its logits, a step with prompts up to its last layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from inference.local.cuda.inputs import PROMPTS, StepShape, decode_shape, prompt_shape
from inference.local.cuda.recordings import Recordings

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
# Rows of prompts in a step without decodes; below, rows and decodes of a mixed step.
PROMPT_ROWS = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MIXED_ROWS = (64, 128, 256, 512)
MIXED_DECODES = (4, 16, 64, 256)


def sizes_for(decodes: int) -> tuple[int, ...]:
    """The recorded numbers of rows, up to the most decodes but at most the largest of SIZES."""
    smaller = tuple(size for size in SIZES if size < decodes)
    return (*smaller, decodes) if decodes <= SIZES[-1] else SIZES


def shapes_for(decodes: int, context: int) -> tuple[StepShape, ...]:
    """All shapes to record, the largest first. `decodes`: the most in a step, a draft being one more."""
    most = min(decodes, MIXED_DECODES[-1])
    mixed = (*(count for count in MIXED_DECODES if count < most), most)
    found = [decode_shape(size) for size in sizes_for(decodes)]
    found += [prompt_shape(0, rows) for rows in PROMPT_ROWS if rows <= context]
    found += [prompt_shape(count, rows) for count in mixed for rows in MIXED_ROWS if rows <= context]
    return tuple(sorted(found, key=lambda shape: (shape.rows, shape.decodes), reverse=True))


class Graphs(Recordings[StepShape]):
    def __init__(
        self,
        compute: Callable[[Tensor, StepShape], Tensor],
        length: Callable[[StepShape], int],
        decodes: int,
        context: int,
        device: torch.device,
    ) -> None:
        """`compute` turns a step's numbers into its logits, or with prompts into the last layer's rows.

        With all numbers 0, the step reads no keys and writes to block 0.
        """
        super().__init__(compute, length, shapes_for(decodes, context), device)

    def shape_for(self, shape: StepShape) -> StepShape | None:
        """The smallest recorded shape that this one fits into, None if it fits into none."""
        prompts, rows = shape.sequences - shape.decodes, shape.rows - shape.decodes
        if prompts > PROMPTS:
            return None
        fitting = (
            each
            for each in reversed(self.shapes)
            if each.decodes >= shape.decodes
            and each.rows - each.decodes >= rows
            and (each.sequences > each.decodes) == (prompts > 0)
            and (each.decodes > 0) == (shape.decodes > 0)
        )
        return next(fitting, None)
