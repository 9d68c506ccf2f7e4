"""Steps that are recorded once and replayed: one for each size of step; smaller steps are padded.

Takes a step's numbers and returns the result in a tensor that the next replay overwrites. A step in which
every sequence has one token is recorded up to its logits, a step with prompts up to its last layer. Launching
a step's kernels one by one takes the host longer than a fast GPU needs to run them; a replay is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.local.cuda.inputs import PROMPTS, StepShape, decode_shape, prompt_shape
from inference.local.cuda.picker import to_device
from inference.progress import ProgressBar

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
# Rows of prompts in a step without decodes; below, rows and decodes of a mixed step.
PROMPT_ROWS = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MIXED_ROWS = (64, 128, 256, 512)
MIXED_DECODES = (4, 16, 64, 256)

Compute = Callable[[Tensor, StepShape], Tensor]


@dataclass(frozen=True, slots=True)
class Recorded:
    graph: torch.cuda.CUDAGraph
    numbers: Tensor
    result: Tensor


def sizes_for(max_concurrent: int) -> tuple[int, ...]:
    """The recorded numbers of sequences, up to the concurrent ones but at most the largest of SIZES."""
    smaller = tuple(size for size in SIZES if size < max_concurrent)
    return (*smaller, max_concurrent) if max_concurrent <= SIZES[-1] else SIZES


def shapes_for(max_concurrent: int, context: int) -> tuple[StepShape, ...]:
    """All shapes to record, the largest first: the memory of the others fits in its memory."""
    most = min(max_concurrent, MIXED_DECODES[-1])
    decodes = (*(count for count in MIXED_DECODES if count < most), most)
    found = [decode_shape(size) for size in sizes_for(max_concurrent)]
    found += [prompt_shape(0, rows) for rows in PROMPT_ROWS if rows <= context]
    found += [prompt_shape(count, rows) for count in decodes for rows in MIXED_ROWS if rows <= context]
    return tuple(sorted(found, key=lambda shape: (shape.rows, shape.decodes), reverse=True))


class Graphs:
    def __init__(
        self, compute: Compute, kinds: int, max_concurrent: int, context: int, device: torch.device
    ) -> None:
        """`compute` turns a step's numbers into its logits, or with prompts into the last layer's rows."""
        self._compute, self._kinds, self._device = compute, kinds, device
        self._shapes = shapes_for(max_concurrent, context)
        self._recorded: dict[StepShape, Recorded] = {}
        self._pool: Any = None  # torch exports no name for its type

    def shape_for(self, shape: StepShape) -> StepShape | None:
        """The smallest recorded shape that this one fits into, None if it fits into none."""
        prompts, rows = shape.sequences - shape.decodes, shape.rows - shape.decodes
        if prompts > PROMPTS:
            return None
        fitting = (
            each
            for each in reversed(self._shapes)
            if each.decodes >= shape.decodes
            and each.rows - each.decodes >= rows
            and (each.sequences > each.decodes) == (prompts > 0)
            and (each.decodes > 0) == (shape.decodes > 0)
        )
        return next(fitting, None)

    def replay(self, numbers: Tensor, shape: StepShape) -> Tensor:
        recorded = self._recorded.get(shape) or self._record(shape)
        recorded.numbers.copy_(to_device(numbers, self._device), non_blocking=True)
        recorded.graph.replay()
        return recorded.result

    def record_all(self, progress: bool | None) -> None:
        with ProgressBar("Recording steps", len(self._shapes), show=progress) as bar:
            for shape in self._shapes:
                self._recorded.get(shape) or self._record(shape)
                bar.advance()

    def _record(self, shape: StepShape) -> Recorded:
        # With all numbers 0, the step reads no keys and writes to block 0.
        numbers = torch.zeros(shape.length(self._kinds), dtype=torch.int64, device=self._device)
        current = torch.cuda.current_stream(self._device)
        other = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        other.wait_stream(current)
        with torch.cuda.stream(other):
            for _ in range(2):  # the first call compiles and tunes, which must not be recorded
                self._compute(numbers, shape)
        current.wait_stream(other)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = self._compute(numbers, shape)
        self._pool = self._pool or graph.pool()
        self._recorded[shape] = Recorded(graph, numbers, result)
        return self._recorded[shape]
