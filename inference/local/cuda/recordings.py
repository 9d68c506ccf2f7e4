"""Work on a device that is recorded once for each shape and replayed.

Takes numbers of a known shape and returns the result in a tensor that the next replay overwrites. Launching
kernels one by one takes the host longer than a fast GPU needs to run them; a replay is one call.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from inference.local.cuda.picker import to_device
from inference.progress import ProgressBar

Shape = TypeVar("Shape", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Recorded:
    graph: torch.cuda.CUDAGraph
    numbers: Tensor
    result: Tensor


class Recordings(Generic[Shape]):
    def __init__(
        self,
        compute: Callable[[Tensor, Shape], Tensor],
        length: Callable[[Shape], int],
        shapes: Sequence[Shape],
        device: torch.device,
    ) -> None:
        """`length`: of a shape's numbers. `shapes`: all to record, the largest first: the others fit in its
        memory. `compute` must accept zeros as numbers."""
        self.shapes = shapes
        self._compute, self._length, self._device = compute, length, device
        self._recorded: dict[Shape, Recorded] = {}
        self._pool: Any = None  # torch exports no name for its type

    def replay(self, numbers: Tensor, shape: Shape) -> Tensor:
        recorded = self._recorded.get(shape) or self._record(shape)
        recorded.numbers.copy_(to_device(numbers, self._device), non_blocking=True)
        recorded.graph.replay()
        return recorded.result

    def record_all(self, what: str, progress: bool | None) -> None:
        with ProgressBar(what, len(self.shapes), show=progress) as bar:
            for shape in self.shapes:
                self._recorded.get(shape) or self._record(shape)
                bar.advance()

    def _record(self, shape: Shape) -> Recorded:
        numbers = torch.zeros(self._length(shape), dtype=torch.int64, device=self._device)
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
