"""Divides the memory for keys and values into blocks for each kind of layer: from a model's shape and bytes.

Layers without a window hold everything that a sequence computed. Layers with one hold, for each running
sequence, the window and the chunk that passes through it, and some windows of ended prompts, from which
conversations continue. Pure arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference.engine import CheckpointError
from inference.local.scheduling.scheduler import SchedulerLimits

if TYPE_CHECKING:
    from inference.drafting.head import DraftHead
    from inference.models.gpt_oss import GptOss

# Share of the memory beyond the minimum, for windows of ended prompts.
SHARE_OF_KEPT_WINDOWS = 0.25
LEAST_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class LayerKind:
    """The layers of a model that have the same window."""

    window: int | None
    bytes_per_token: int  # keys and values of all these layers


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    blocks: tuple[int, ...]  # for each kind, block 0 included
    block_size: int
    context: int  # the longest sequence that fits
    byte_size: int
    whole_tokens: int  # tokens that the layers without a window hold

    def describe(self, limits: SchedulerLimits) -> str:
        large = self.byte_size >= 2**30
        size = f"{self.byte_size / 2**30:.1f} GiB" if large else f"{self.byte_size >> 20} MiB"
        return (
            f"up to {size} for keys and values: {self.whole_tokens:,} tokens in blocks of {self.block_size}; "
            f"{limits.max_concurrent} requests may run, {limits.max_waiting} may wait"
        )


def layer_kinds(model: GptOss, head: DraftHead | None = None, block_size: int = 1) -> list[LayerKind]:
    """In the order of the config's windows. A draft head is one more layer of those without a window."""
    config = model.config
    per_layer = 2 * config.kv_heads * config.head_dim * model.kv_dtype.itemsize
    counts = Counter(config.window(layer) for layer in range(config.layers))
    sizes = {window: per_layer * counts[window] for window in config.windows}
    if head is not None:
        own = head.config  # a block has keys and values of its pairs, and the feature of its last position
        numbers = 2 * own.kv_heads * own.head_dim * block_size + own.hidden
        sizes[None] += -(-numbers * model.dtype.itemsize // block_size)
    return [LayerKind(window, size) for window, size in sizes.items()]


def plan_memory(
    kinds: Sequence[LayerKind],
    available: int,
    *,
    context: int,
    may_shorten: bool,
    limits: SchedulerLimits,
    block_size: int,
    steady: int | None = None,
) -> MemoryPlan:
    """Raises `CheckpointError` if not even one sequence of this context (or a shortened one) fits.

    The context depends on `steady` bytes alone where they are given, and not on what happens to be available:
    a restart must not change it. One sequence of it then has its blocks in any case.
    """
    bound = available if steady is None else steady
    while (needs := _bytes(kinds, least := _least(kinds, context, limits, block_size), block_size)) > bound:
        if not may_shorten or context <= LEAST_CONTEXT:
            raise CheckpointError(
                f"A context of {context:,} tokens needs {needs >> 20:,} MiB for "
                f"keys and values, but only {max(0, bound) >> 20:,} MiB are available. Choose a smaller "
                "--context or --max-concurrent, or give more --kv-memory."
            )
        context = max(LEAST_CONTEXT, context * 7 // 8)
    available = max(available, needs)
    most = [1 + limits.max_concurrent * _blocks_for(context, block_size) for _ in kinds]
    blocks = _spread(kinds, least, most, available, block_size)
    full = [count for count, kind in zip(blocks, kinds, strict=True) if kind.window is None]
    whole = (max(full or blocks) - 1) * block_size
    return MemoryPlan(tuple(blocks), block_size, context, _bytes(kinds, blocks, block_size), whole)


def _least(kinds: Sequence[LayerKind], context: int, limits: SchedulerLimits, size: int) -> list[int]:
    """The fewest blocks with which one sequence fills the context and all running ones keep their windows."""
    chunk = _blocks_for(limits.chunk, size) + limits.chunk // limits.least_chunk
    longest = _blocks_for(context + limits.reach, size) + 1
    least = []
    for kind in kinds:
        if kind.window is None:
            least.append(1 + longest)
        else:
            running = limits.max_concurrent * (_blocks_for(kind.window + limits.reach, size) + 2)
            least.append(1 + min(running, limits.max_concurrent * longest) + chunk)
    return least


def _spread(
    kinds: Sequence[LayerKind], least: list[int], most: list[int], available: int, size: int
) -> list[int]:
    """Divides the rest: a share of it to the windows, and what they do not need to the others."""
    rest = available - _bytes(kinds, least, size)
    blocks = list(least)
    windowed = [at for at, kind in enumerate(kinds) if kind.window is not None]
    full = [at for at, kind in enumerate(kinds) if kind.window is None]
    for places, share in ((windowed, SHARE_OF_KEPT_WINDOWS if full else 1.0), (full, 1.0)):
        granted = int(rest * share)
        for at in places:
            per_block = kinds[at].bytes_per_token * size
            more = min(max(0, most[at] - blocks[at]), granted // len(places) // per_block)
            blocks[at] += more
            rest -= more * per_block
    return blocks


def _blocks_for(tokens: int, size: int) -> int:
    return -(-tokens // size)


def _bytes(kinds: Sequence[LayerKind], blocks: Sequence[int], size: int) -> int:
    return sum(kind.bytes_per_token * count * size for kind, count in zip(kinds, blocks, strict=True))
