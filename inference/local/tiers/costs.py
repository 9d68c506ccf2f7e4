"""What it costs to compute tokens and to restore blocks, measured when an engine starts.

Takes a runner whose memory is not used yet, and a folder. Returns seconds. It must not know requests.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy

from inference.engine import Sampling
from inference.local.scheduling.step import Runner, StepPart
from inference.local.tiers.packs import checksum
from inference.local.tiers.tiers import BlockMemory, Costs

SAMPLE = 16  # blocks that are copied as a trial
READ = 4 << 20  # bytes that are read: of few, a disk's delay would be the most


def measured(runner: Runner, memory: BlockMemory, kinds: int, chunk: int, folder: Path | None) -> Costs:
    """`chunk`: tokens of a prompt in one step. It writes to the first blocks of each kind."""
    count = max(1, min(SAMPLE, chunk // runner.block_size))
    rows = memory.contents(0, range(1, count + 1))
    began = time.perf_counter()
    memory.fill(0, range(1, count + 1), numpy.array(rows))
    in_memory = (time.perf_counter() - began) / rows.nbytes
    disk = 0.0 if folder is None else _seconds_to_read(rows.tobytes(), folder)
    token = min(_seconds_to_compute(runner, kinds, chunk) for _ in range(2)) / chunk  # the first one warms up
    return Costs(token, disk + in_memory, in_memory)


def _seconds_to_compute(runner: Runner, kinds: int, chunk: int) -> float:
    tables: Sequence[Sequence[int]] = [range(1, -(-chunk // runner.block_size) + 1)] * kinds
    picker = runner.picker(Sampling(temperature=0.0))
    began = time.perf_counter()
    runner.launch([StepPart(0, range(1, chunk + 1), 0, tables, 1, picker)]).outcomes()
    return time.perf_counter() - began


def _seconds_to_read(content: bytes, folder: Path) -> float:
    """Of a byte, from the device itself, where the system can be made to forget what was written."""
    content *= 1 + READ // len(content)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        began = time.perf_counter()
        checksum(b"", file.read())
        return (time.perf_counter() - began) / len(content)
