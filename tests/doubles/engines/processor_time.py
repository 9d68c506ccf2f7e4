"""The processor time of processes and threads, from Linux's /proc. Imports the standard library alone."""

import os
from contextlib import suppress
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
    return _seconds(Path(f"/proc/{pid}"))


def seconds_of_threads(pid: int) -> dict[int, float]:
    """That each thread of a process has used so far, by its id; the first thread has the process's."""
    found: dict[int, float] = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found[int(task.name)] = _seconds(task)
    return found


def _seconds(folder: Path) -> float:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
