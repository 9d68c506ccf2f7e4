"""Steps that were recorded once and are replayed: one for each size of step, filled up to it.

In go a step's numbers, out comes what was computed from them, in a tensor that the next replay overwrites. A
step in which every sequence has one token is recorded with its logits, one with prompts up to its last layer.
To launch a step's kernels one by one takes a processor longer than a fast GPU takes to run them; to replay
them is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.local.cuda_inputs import PROMPTS, StepShape, filled_up, filled_up_with_prompts
from inference.local.cuda_picker import to_device
from inference.progress import ProgressBar

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
# Rows of prompts: in a step of their own, and beside sequences that decode.
PROMPT_ROWS = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
ROWS_BESIDE = (64, 128, 256, 512)
DECODES_BESIDE = (4, 16, 64, 256)

Compute = Callable[[Tensor, StepShape], Tensor]


@dataclass(frozen=True, slots=True)
class Recorded:
    graph: torch.cuda.CUDAGraph
    numbers: Tensor
    result: Tensor


def sizes_for(max_concurrent: int) -> tuple[int, ...]:
    """Up to as many sequences as there can be, but no more than are worth it."""
    smaller = tuple(size for size in SIZES if size < max_concurrent)
    return (*smaller, max_concurrent) if max_concurrent <= SIZES[-1] else SIZES


def shapes_for(max_concurrent: int, context: int) -> tuple[StepShape, ...]:
    """All that are recorded, the largest first: the others' memory fits in its own."""
    most = min(max_concurrent, DECODES_BESIDE[-1])
    decodes = (*(count for count in DECODES_BESIDE if count < most), most)
    found = [filled_up(size) for size in sizes_for(max_concurrent)]
    found += [filled_up_with_prompts(0, rows) for rows in PROMPT_ROWS if rows <= context]
    found += [
        filled_up_with_prompts(count, rows) for count in decodes for rows in ROWS_BESIDE if rows <= context
    ]
    return tuple(sorted(found, key=lambda shape: (shape.rows, shape.decodes), reverse=True))


class Graphs:
    def __init__(
        self, compute: Compute, kinds: int, max_concurrent: int, context: int, device: torch.device
    ) -> None:
        """`compute`: a step's numbers to its logits, or with prompts to its rows behind the last layer."""
        self._compute, self._kinds, self._device = compute, kinds, device
        self._shapes = shapes_for(max_concurrent, context)
        self._recorded: dict[StepShape, Recorded] = {}
        self._pool: Any = None  # its type has no name that may be imported

    def shape_for(self, shape: StepShape) -> StepShape | None:
        """The smallest recorded step that this one fits in; None where there is none."""
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
        # Everything 0: no keys are read, block 0 is written to.
        numbers = torch.zeros(shape.length(self._kinds), dtype=torch.int64, device=self._device)
        here = torch.cuda.current_stream(self._device)
        aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(2):  # what is compiled or chosen at the first call must not be recorded
                self._compute(numbers, shape)
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = self._compute(numbers, shape)
        self._pool = self._pool or graph.pool()
        self._recorded[shape] = Recorded(graph, numbers, result)
        return self._recorded[shape]
