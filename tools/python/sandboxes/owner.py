"""Whose a container or a folder is, written into its name, so that what a killed server left can be told.

In: nothing, or a mark. Out: this process's mark, and whether the process of a mark is gone for sure.
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
    """What process ids mean here: those of another boot, or of another namespace, name other processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]


def mark() -> str:
    return f"{_numbering()}.{os.getpid()}.{_started(os.getpid())}"


def gone(other: str) -> bool:
    """False also where it cannot be told: a server in another container may be alive and not seen here."""
    if re.fullmatch(MARK, other) is None:
        return False
    numbering, pid, started = other.split(".")
    return numbering == _numbering() and _started(int(pid)) != int(started)


def _started(pid: int) -> int:
    """When a process began, in ticks since the boot: its number may be another's later. 0: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
