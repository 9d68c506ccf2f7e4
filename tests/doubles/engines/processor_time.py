"""The processor time of processes, from Linux's /proc. Imports the standard library alone."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """That a process and its children have used so far, with all of their threads."""
    total, waiting = 0.0, [pid]
    while waiting:
        process = waiting.pop()
        try:
            own = seconds_of_one(process)
            for task in list(Path(f"/proc/{process}/task").iterdir()):
                waiting += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # it has ended
        total += own
    return total


def seconds_of_one(pid: int) -> float:
    """That a process has used so far without its children, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
