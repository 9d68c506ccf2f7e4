"""Marks the owner of a container or folder in its name, to recognise the leftovers of a killed server.

Takes nothing, or a mark. Returns this process's mark, and whether the process of a mark is certainly gone.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

MARK = r"[0-9a-f]{8}\.[0-9]+\.[0-9]+"


@cache
def _numbering() -> str:
    """The scope of process ids: ids of another boot or another namespace belong to other processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]


def mark() -> str:
    return f"{_numbering()}.{os.getpid()}.{_started(os.getpid())}"


def gone(other: str) -> bool:
    """Whether the owner is gone. False if that is unknown: a server in another container may be invisible."""
    if re.fullmatch(MARK, other) is None:
        return False
    numbering, pid, started = other.split(".")
    return numbering == _numbering() and _started(int(pid)) != int(started)


def _started(pid: int) -> int:
    """When a process started, in ticks since boot, because its number can be reused. 0: no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
