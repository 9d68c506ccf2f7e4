"""What of this machine decides the flags of an engine: its cards, its memory, its threads.

It reads the system's files and asks the cards' own tool, and imports no framework.
"""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from inference.local.machine import free_memory
from inference.options import EngineOptions

_SLOTS = 4
_FULL, _LEAST = 131_072, 8192  # tokens of a context: the published models' own, and the least that is chosen
_PART = 1024
_A_LAYER = 2048  # bytes of keys and values of a token in a layer of a published model, in 16 bits
_LAYERS = ((40 << 30, 24), (1 << 60, 36))  # of models up to this size: 20b, 120b
_ASSUMED = 64 << 30  # bytes of weights, where they are not known: the largest model's


@dataclass(frozen=True, slots=True)
class Machine:
    threads: int
    memory: int  # free bytes
    cards: tuple[tuple[str, int], ...] = ()  # NVIDIA's: the name and the free bytes of each

    @property
    def of_cards(self) -> int:
        return sum(free for _, free in self.cards)


@cache
def cards() -> tuple[tuple[str, int], ...]:
    query = ["nvidia-smi", "--query-gpu=name,memory.free", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
        rows = [line.rpartition(",") for line in listed.splitlines()]
        return tuple((name.strip(), int(free) << 20) for name, _, free in rows)
    except (OSError, ValueError, subprocess.SubprocessError):  # none, or a driver that does not work
        return ()


def this_machine(device: str) -> Machine:
    return Machine(_threads(), free_memory(), () if device == "cpu" else cards())


def _threads() -> int:
    """One for each core that this process may use: two of one core disturb each other."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        is_split = Path("/sys/devices/system/cpu/smt/active").read_text(encoding="ascii").strip() == "1"
    except OSError:
        is_split = False
    return max(1, count // 2 if is_split else count)


def parallel_cards(machine: Machine) -> int:
    """A power of two, as heads are divided among the cards."""
    return 1 << max(0, len(machine.cards).bit_length() - 1) if machine.cards else 1


def llama_sizes(options: EngineOptions, machine: Machine, size: int | None) -> tuple[int, int, bool]:
    """How many slots, the context of each, and whether layers with a window keep all of it (--swa-full).

    Half of the memory that the weights leave is for keys and values, but at most four times theirs. Layers
    are whole where the context stays long: then a conversation finds its beginning again, whatever was
    removed from its end.
    """
    slots, weights = options.max_concurrent or _SLOTS, size or _ASSUMED
    free = max(machine.memory, machine.of_cards) - weights
    free = min(free, 8 * weights)
    layers = next(layers for most, layers in _LAYERS if weights <= most)
    tokens = max(0, free) // 2 // (layers * _A_LAYER) // slots
    whole = tokens >= (options.context or 2 * _LEAST)
    fits = min(_FULL, tokens if whole else 2 * tokens) // _PART * _PART
    return slots, options.context or max(_LEAST, fits), whole
