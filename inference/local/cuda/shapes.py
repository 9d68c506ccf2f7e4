"""The shapes of steps, and which are recorded: smaller steps are padded to them.

Takes a step's shape and returns the recorded one that holds it. A step in which every sequence has one token
is recorded up to its logits, a step with prompts up to its last layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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


def decode_shape(sequences: int) -> StepShape:
    """The shape of a step in which each sequence has one token or is padding."""
    return StepShape(sequences, sequences, sequences, 1)


def prompt_shape(decodes: int, rows: int) -> StepShape:
    """The shape of a step with `decodes` sequences of one token and up to PROMPTS prompts of `rows` in all.
    One more sequence, which is padding, takes the unused rows."""
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
