"""Watches boxes from outside and ends those that exceed a limit.

Takes the first process of a box and its limits. Kills the box if necessary; its `verdict` then states why, in
words. It runs in a thread of its own, so that a busy event loop does not delay it, and inspects the whole
process tree from the host, which code in the box cannot leave: the box's first process adopts orphans. It
must not know kernels or sandboxes.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools.python.sandboxes.sandbox import MIB, SandboxLimits

INTERVAL = 0.1  # seconds between two checks of a box whose code runs
_SLOWER = 5  # an unused box is checked once in this many intervals
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """The current usage of a process tree. Resident memory counts shared pages once for each process."""

    processes: int  # with threads
    resident: int
    cpu_seconds: float
    ids: tuple[int, ...]


@dataclass(slots=True)
class Watched:
    """One watched box. `otherwise` returns another exceeded limit that its sandbox knows, such as files."""

    root: int
    limits: SandboxLimits
    kill: Callable[[], None]
    otherwise: Callable[[], str | None]
    spare: int = 0  # processes of the sandbox itself
    running: bool = True
    verdict: str | None = field(default=None, init=False)
    waited: int = field(default=0, init=False)
    removed: bool = field(default=False, init=False)
    looking: threading.Lock = field(default_factory=threading.Lock, init=False)

    def due(self) -> bool:
        self.waited += 1
        if not self.running and self.waited < _SLOWER:
            return False
        self.waited = 0
        return True

    def look(self) -> None:
        """Checks the box, and ends it if it exceeds a limit."""
        with self.looking:
            if self.verdict is None and not self.removed:
                self.verdict = self._judge()
                if self.verdict is not None:
                    self.kill()

    def _judge(self) -> str | None:
        usage = measure(self.root, self.limits.processes + self.spare)
        if usage.processes > self.limits.processes + self.spare:
            return f"it had more than {self.limits.processes} processes and threads"
        if usage.cpu_seconds > self.limits.cpu_seconds:
            return f"it had used {self.limits.cpu_seconds} s of processor time"
        # The cheap sum comes first; pages shared after a fork are separated only when it matters.
        if usage.resident > self.limits.memory and _proportional(usage.ids) > self.limits.memory:
            return f"it used more than {self.limits.memory // MIB} MiB of memory"
        return self.otherwise()


class Watchdog:
    """A thread that checks all boxes; it exists while there are any."""

    def __init__(self) -> None:
        self._boxes: list[Watched] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, box: Watched) -> None:
        with self._changed:
            self._boxes.append(box)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="python-tool-watchdog", daemon=True)
                self._thread.start()

    def remove(self, box: Watched) -> None:
        """Stops watching. Afterwards no check is running, and the box's descriptors may be closed."""
        with box.looking:
            box.removed = True
        with self._changed:
            if box in self._boxes:
                self._boxes.remove(box)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(INTERVAL)
                if not self._boxes:
                    self._thread = None
                    return
                due = [box for box in self._boxes if box.verdict is None and box.due()]
            for box in due:
                box.look()


def measure(root: int, enough: int) -> Usage:
    """The usage of the tree below `root`; stops counting soon after `enough` processes."""
    processes = resident = 0
    cpu = 0.0
    ids: list[int] = []
    for pid in _tree(root):
        threads = _threads(pid)
        if not threads:
            continue  # it ended during the check
        ids.append(pid)
        processes += len(threads)
        resident += _resident(pid)
        cpu += _cpu_seconds(pid)
        if processes > enough:
            break
    return Usage(processes, resident, cpu, tuple(ids))


def _tree(root: int) -> Iterator[int]:
    children = _children if _lists_children() else _children_by_parent()
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        pending += children(pid)


@cache
def _lists_children() -> bool:
    """Whether this kernel was built with lists of children, as nearly all are."""
    return (_PROC / f"self/task/{os.getpid()}/children").exists()


def _children(pid: int) -> list[int]:
    """The children of all threads, because a child belongs to the thread that created it."""
    return [
        int(child) for thread in _threads(pid) for child in _text(f"{pid}/task/{thread}/children").split()
    ]


def _children_by_parent() -> Callable[[int], list[int]]:
    """The same, from one pass over every process of the host."""
    found: dict[int, list[int]] = defaultdict(list)
    for pid in filter(str.isdigit, os.listdir(_PROC)):
        fields = _text(f"{pid}/stat").rpartition(")")[2].split()
        if fields:
            found[int(fields[1])].append(int(pid))
    return lambda parent: found[parent]


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(_PROC / str(pid) / "task")
    except OSError:
        return []


def _resident(pid: int) -> int:
    fields = _text(f"{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _cpu_seconds(pid: int) -> float:
    """Includes the process's reaped children, which are no longer in the tree."""
    fields = _text(f"{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def _proportional(ids: tuple[int, ...]) -> int:
    """Memory with each shared page divided among its processes."""
    total = 0
    for pid in ids:
        for line in _text(f"{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _text(name: str) -> str:
    try:
        return (_PROC / name).read_text("utf-8", "replace")
    except OSError:
        return ""  # the process ended during the check
