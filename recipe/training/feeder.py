"""Makes conversations in separate processes, alongside the training."""

from __future__ import annotations

import multiprocessing
import signal
from itertools import cycle
from multiprocessing.sharedctypes import Synchronized
from queue import Empty
from typing import Any

from inference.tiny.codes import Longs
from recipe.text.vocabulary import token_table
from recipe.training.batches import Batch, batches

_PATIENCE = 5.0  # seconds, before it checks whether the process still runs
_AHEAD = 12  # batches, for all processes together


def _produce(
    queue: Any, seed: str, learned: Longs, size: int, progress: Synchronized[float], careful: bool
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for batch in batches(seed, learned, size, progress, careful=careful):
        queue.put(batch)


class Feeder:
    """Makes batches ahead of the training, in processes that take turns."""

    def __init__(
        self, seed: str, learned: Longs, size: int, *, careful: bool = False, processes: int = 1
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.progress: Synchronized[float] = context.Value("d", 0.0)
        token_table()  # once for all processes
        self._made: Any = []
        for place in range(processes):
            queue: Any = context.Queue(max(2, _AHEAD // processes))
            own = seed if place == 0 else f"{seed}/{place}"
            process = context.Process(
                target=_produce, args=(queue, own, learned, size, self.progress, careful), daemon=True
            )
            process.start()
            self._made.append((queue, process))
        self._turns = cycle(self._made)

    def next(self) -> Batch:
        """The next batch. Raises an error if its process has ended."""
        queue, process = next(self._turns)
        while True:
            try:
                batch: Batch = queue.get(timeout=_PATIENCE)
            except Empty:
                if not process.is_alive():
                    raise RuntimeError("no more conversations: the error above ended their process") from None
                continue
            return batch

    def close(self) -> None:
        for _, process in self._made:
            process.terminate()
        for _, process in self._made:
            process.join()
