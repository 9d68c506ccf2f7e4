"""The processor time of processes and threads, from Linux's /proc. Imports the standard library alone."""

import os
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """That a process and its children have used so far, with all of their threads."""
    total = 0.0
    for process in family(pid):
        with suppress(FileNotFoundError):  # it has ended
            total += seconds_of_one(process)
    return total


def family(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    found, waiting = [], [pid]
    while waiting:
        found.append(process := waiting.pop(0))
        with suppress(FileNotFoundError):  # it has ended
            for task in list(Path(f"/proc/{process}/task").iterdir()):
                waiting += map(int, (task / "children").read_text().split())
    return found


def of_program(pid: int, name: str) -> list[int]:
    """The members of the family that run this program, perhaps by an interpreter."""
    words = {each: Path(f"/proc/{each}/cmdline").read_bytes().decode().split("\0") for each in family(pid)}
    return [each for each, line in words.items() if name in map(os.path.basename, line[:2])]


def is_gone(pid: int) -> bool:
    """A zombie is, too: its parent may be slow to notice."""
    try:
        return (Path(f"/proc/{pid}") / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


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
