"""The tiers of an engine, as its operator chose them.

Takes options, a model, its checkpoint and its runner. Blocks in a folder belong to an identity: all that
decides keys and values besides tokens and salts. Large files are hashed once, then known by size and time.
What it costs to compute tokens and to restore blocks is measured before the memory is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy

from inference.engine import CheckpointError, Sampling
from inference.local.scheduling.step import Runner, StepPart
from inference.local.tiers.packs import Packs, checksum
from inference.local.tiers.tiers import BlockMemory, Costs, Tiers
from inference.models.gpt_oss import GptOss
from inference.models.weights import find_checkpoint
from inference.options import EngineOptions
from inference.paths import expanded_path, replacing

LAYOUT = 2  # of packs and of the kernels' keys and values: raise it when the same tokens have other bytes
HASHES = "weights.json"
SAMPLE = 16  # blocks that are copied as a trial
READ = 4 << 20  # bytes that are read: of few, a disk's delay would be the most


def open_tiers(
    model: GptOss,
    runner: Runner,
    memory: BlockMemory,
    options: EngineOptions,
    *,
    chunk: int,
    checkpoint: Path | None,
) -> Tiers | None:
    """None if none was chosen. Times a step of `chunk` tokens. Raises `CheckpointError` for unusable ones."""
    if options.cache_dir is None and not options.cache_memory:
        return None
    if options.draft_head is not None:
        raise CheckpointError(
            "--cache-dir and --cache-memory cannot be combined with a draft head, whose own keys and values "
            "they do not hold. Leave one of them out."
        )
    kinds, packs, folder = model.config.windows, None, None
    if options.cache_dir is not None:
        if checkpoint is None:
            raise CheckpointError(
                "--cache-dir needs the files of a checkpoint. Leave it out for random weights."
            )
        folder = expanded_path(options.cache_dir, failure=lambda why: CheckpointError(f"--cache-dir: {why}"))
        identity = model_identity(model, runner.block_size, checkpoint, folder)
        packs = Packs(folder, identity, memory.block_bytes, options.cache_disk)
    costs = measured(runner, memory, len(kinds), chunk, folder)
    counted = kinds.index(None) if None in kinds else 0
    tokens = [runner.block_size if kind == counted else 0 for kind in range(len(kinds))]
    return Tiers(memory, packs, options.cache_memory or 0, costs, tokens)


def model_identity(model: GptOss, block_size: int, checkpoint: Path, remembered: Path) -> str:
    """`remembered`: the folder that keeps the hashes of weights."""
    shape = repr(replace(model.config, context_length=1))  # only a limit
    numbers = (LAYOUT, model.device.type, str(model.dtype), str(model.kv_dtype), model.precision.weights)
    files = sorted(find_checkpoint(checkpoint).glob("*.safetensors"))
    parts = (*numbers, block_size, shape, *_hashes(files, remembered / HASHES))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _hashes(files: Sequence[Path], memo: Path) -> list[str]:
    known: dict[str, list[object]] = {}
    with suppress(OSError, ValueError):
        known = json.loads(memo.read_text(encoding="utf-8"))
    found = {}
    for file in files:
        stat, name = file.stat(), str(file.resolve())
        facts = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
        before = known.get(name)
        if isinstance(before, list) and before[:-1] == facts:
            found[name] = before
        else:
            with file.open("rb") as opened:
                found[name] = [*facts, hashlib.file_digest(opened, "sha256").hexdigest()]
    if not found.items() <= known.items():
        with suppress(OSError):  # the next start reads the files again
            memo.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(memo) as written:
                written.write(json.dumps(known | found).encode())
    return [str(facts[-1]) for facts in found.values()]


def measured(runner: Runner, memory: BlockMemory, kinds: int, chunk: int, folder: Path | None) -> Costs:
    """Seconds. `chunk`: tokens of a prompt in one step. It writes to the first blocks of each kind."""
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
