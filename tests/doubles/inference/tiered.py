"""An engine that is driven turn by turn, over tiers whose thread is driven too, and a folder that is real."""

import asyncio
from collections.abc import Sequence as Listed
from pathlib import Path
from typing import Any

import numpy

from inference.local.engine import LocalEngine
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.tiers.packs import Packs
from inference.local.tiers.tiers import Costs, Tiers
from tests.doubles.inference.driven import Driven, MemoryRunner

SIZE = 4
RESTORING_PAYS = Costs(token=1.0, disk_byte=0.0, memory_byte=0.0)
COMPUTING_PAYS = Costs(token=0.0, disk_byte=1.0, memory_byte=1.0)
PLACE = 16  # bytes: two hashes


class CopiedRunner(MemoryRunner):
    """Implements also `BlockMemory`. A place that was never written has other bytes than any that was."""

    @property
    def block_bytes(self) -> list[int]:
        return [PLACE * self.block_size] * len(self.windows)

    def contents(self, kind: int, blocks: Listed[int]) -> Any:
        size = self.block_size
        rows = [[self.places.get((kind, b * size + at), (0, 0)) for at in range(size)] for b in blocks]
        return numpy.array(rows, dtype=numpy.int64).reshape(len(blocks), -1).view(numpy.uint8)

    def fill(self, kind: int, blocks: Listed[int], contents: Any) -> None:
        pairs = contents.view(numpy.int64).reshape(len(blocks), self.block_size, 2).tolist()
        for block, own in zip(blocks, pairs, strict=True):
            for at, (now, past) in enumerate(own):
                self.places[kind, block * self.block_size + at] = (now, past)


class Tiered(Driven):
    """`folder` None: the memory of the machine alone."""

    def __init__(
        self,
        folder: Path | None,
        *,
        windows: Listed[int | None] = (10, None),
        blocks: Listed[int] = (60, 200),
        running: int = 2,
        disk: int = 1 << 30,
        memory: int = 0,
        costs: Costs = RESTORING_PAYS,
    ) -> None:
        runner = CopiedRunner(tuple(windows), SIZE)
        packs = None if folder is None else Packs(folder, "hashes", runner.block_bytes, disk)
        counted = windows.index(None) if None in windows else 0
        tokens = [SIZE if kind == counted else 0 for kind in range(len(windows))]
        self.tiers = Tiers(runner, packs, memory, costs, tokens)
        limits = SchedulerLimits(max_concurrent=running, max_waiting=1000, chunk=16, least_chunk=4)
        super().__init__(runner, windows, blocks, limits, self.tiers)
        self.tiers.is_current = self.cache.is_current

    def copy_all(self) -> None:
        while self.tiers.work():
            pass

    def finish(self) -> None:
        """Until all sequences have ended, and all copies."""
        for _ in range(10_000):
            self.copy_all()
            for client in self.clients:
                client.read()
            if not self.turn() and not self.loop.active and not self.tiers.has_work:
                break
        else:
            raise AssertionError(f"{self.loop.active} sequences never end")
        for client in self.clients:
            client.read()


async def all_stored(engine: LocalEngine) -> None:
    """Waits until no block waits to be written."""
    for _ in range(6000):
        if not engine.measures().get("cache_queued"):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("blocks wait for ever to be stored")
