"""Steps that were recorded once and are replayed: one for each number of sequences that have one token each.

In go a step's numbers, out come the logits, in a tensor that the next replay overwrites. A step of fewer
sequences than a recorded one is filled up. Launching a step's kernels one by one takes a processor longer
than a fast GPU takes to run them; replaying it is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.local.cuda_inputs import StepShape, filled_up
from inference.local.cuda_picker import to_device
from inference.progress import ProgressBar

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)

Compute = Callable[[Tensor, StepShape], Tensor]


@dataclass(frozen=True, slots=True)
class Recorded:
    graph: torch.cuda.CUDAGraph
    numbers: Tensor
    logits: Tensor


def sizes_for(max_concurrent: int) -> tuple[int, ...]:
    """Up to as many sequences as there can be, but no more than are worth it."""
    smaller = tuple(size for size in SIZES if size < max_concurrent)
    return (*smaller, max_concurrent) if max_concurrent <= SIZES[-1] else SIZES


class Graphs:
    def __init__(self, compute: Compute, kinds: int, max_concurrent: int, device: torch.device) -> None:
        self._compute, self._kinds, self._device = compute, kinds, device
        self._sizes = sizes_for(max_concurrent)
        self._recorded: dict[int, Recorded] = {}
        self._pool: Any = None  # its type has no name that may be imported

    def shape_for(self, shape: StepShape) -> StepShape | None:
        """That of the recorded step which this one fits in; None where there is none."""
        if shape.decodes < shape.sequences or shape.sequences > self._sizes[-1]:
            return None
        return filled_up(next(size for size in self._sizes if size >= shape.sequences))

    def replay(self, numbers: Tensor, shape: StepShape) -> Tensor:
        recorded = self._recorded.get(shape.sequences) or self._record(shape)
        recorded.numbers.copy_(to_device(numbers, self._device), non_blocking=True)
        recorded.graph.replay()
        return recorded.logits

    def record_all(self, progress: bool | None) -> None:
        """The largest first: the others' memory fits in its own."""
        with ProgressBar("Recording steps", len(self._sizes), show=progress) as bar:
            for size in reversed(self._sizes):
                self._recorded.get(size) or self._record(filled_up(size))
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
            logits = self._compute(numbers, shape)
        self._pool = self._pool or graph.pool()
        self._recorded[shape.sequences] = Recorded(graph, numbers, logits)
        return self._recorded[shape.sequences]
