"""The processor time of processes, from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """That a process and its children have used so far, with all of their threads."""
    ticks = os.sysconf("SC_CLK_TCK")
    total, waiting = 0, [pid]
    while waiting:
        process = waiting.pop()
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            tasks = list(Path(f"/proc/{process}/task").iterdir())
            for task in tasks:
                waiting += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # it has ended
        total += int(fields[11]) + int(fields[12])
    return total / ticks
