"""Measures a tree of processes from outside, from the host's /proc.

Code in a box cannot leave the tree: the box's first process adopts orphans. A file of /proc that cannot be
read hides nothing: the larger figure counts.
"""

import os
import platform
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools import child
from tools.python.sandboxes.bounds.cgroups import read

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_MEMORY = re.compile(r"^(VmRSS|VmSwap|VmPTE|HugetlbPages):\s+(\d+) kB$", re.MULTILINE)
_SHARES = re.compile(r"^(?:Pss|SwapPss):\s+(\d+) kB$", re.MULTILINE)
_SOCKETS = re.compile(r"^sockets: used (\d+)$", re.MULTILINE)
_CONNECTIONS = re.compile(r"^(?:TCP: inuse (?:[2-9]|\d\d)|TCP6: inuse [1-9])", re.MULTILINE)
_QUEUES = re.compile(r"^ *\d+: \S+ \S+ [0-9A-F]{2} ([0-9A-F]{8}):([0-9A-F]{8}) ", re.MULTILINE)
_OVERHEAD = 2  # the kernel's memory for a queue, per byte of content
_COUNTED_SINCE = (6, 2)  # the Linux whose /proc/PID/fd has its number of files as its size


@dataclass(frozen=True, slots=True)
class Usage:
    """The current usage of a process tree. `memory` counts shared pages once for each process."""

    processes: int  # with threads
    memory: int  # resident, swapped, and the tables of pages
    descriptors: int
    cpu_seconds: float
    ids: tuple[int, ...]


def measure(root: int, enough: int) -> Usage:
    """The usage of the tree below `root`; stops counting soon after `enough` processes."""
    processes = memory = descriptors = 0
    cpu = 0.0
    ids: list[int] = []
    for pid in _tree(root):
        threads = _threads(pid)
        if not threads:
            continue  # it ended during the check
        ids.append(pid)
        processes += len(threads)
        memory += sum(_memory(pid).values())
        descriptors += _descriptors(pid)
        cpu += _cpu_seconds(pid)
        if processes > enough:
            break
    return Usage(processes, memory, descriptors, cpu, tuple(ids))


def proportional(ids: tuple[int, ...]) -> int:
    """Memory with each shared page divided among its processes; one that hides its shares counts in full."""
    total = 0
    for pid in ids:
        of_all = _memory(pid)
        shares = _SHARES.findall(_text(f"{pid}/smaps_rollup"))
        if shares:
            total += 1024 * sum(map(int, shares)) + of_all["VmPTE"] + of_all["HugetlbPages"]
        else:
            total += sum(of_all.values())
    return total


def sockets(root: int) -> int:
    """The sockets in the network namespace of `root`, also those that only the kernel holds."""
    used = _SOCKETS.search(_text(f"{root}/net/sockstat"))
    return int(used[1]) if used else 0


def queued(root: int) -> int:
    """About how much memory the contents of its TCP connections take, also of closed ones."""
    counts = _text(f"{root}/net/sockstat") + _text(f"{root}/net/sockstat6")
    if not _CONNECTIONS.search(counts):
        return 0  # the tables are slow to read on a machine with many connections
    contents = "".join(_text(f"{root}/net/{name}") for name in ("tcp", "tcp6"))
    return _OVERHEAD * sum(int(out, 16) + int(back, 16) for out, back in _QUEUES.findall(contents))


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
    listed = (_text(f"{pid}/task/{thread}/children") for thread in _threads(pid))
    return [int(child) for text in listed for child in text.split()]


def _children_by_parent() -> Callable[[int], list[int]]:
    """The same, from one pass over every process of the host."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in filter(str.isdigit, os.listdir(_PROC)):
        fields = _text(f"{pid}/stat").rpartition(")")[2].split()
        if fields:
            children[int(fields[1])].append(int(pid))
    return lambda parent: children[parent]


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(_PROC / str(pid) / "task")
    except OSError:
        return []


def _memory(pid: int) -> dict[str, int]:
    """In bytes, by /proc's names."""
    sizes = dict.fromkeys(("VmRSS", "VmSwap", "VmPTE", "HugetlbPages"), 0)
    return sizes | {name: 1024 * int(size) for name, size in _MEMORY.findall(_text(f"{pid}/status"))}


@cache
def _counts_descriptors() -> bool:
    return linux_since(_COUNTED_SINCE, platform.release())


def _descriptors(pid: int) -> int:
    folder = _PROC / str(pid) / "fd"
    try:
        return folder.stat().st_size if _counts_descriptors() else len(os.listdir(folder))
    except OSError:
        return 0  # it ended, or hides them; RLIMIT_NOFILE still holds


def _cpu_seconds(pid: int) -> float:
    """Includes the process's reaped children, which are no longer in the tree."""
    fields = _text(f"{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def _text(name: str) -> str:
    return read(_PROC / name)  # "" if the process ended during the check, or may not be read


_SETTING = Path("/proc/sys/kernel/pid_max")
_RESERVED = 300  # lower numbers are used only once, so a long-lived box has only the others
_PER_PROCESSOR = 8  # the kernel's minimum for each possible processor
_PROCESSORS = Path("/sys/devices/system/cpu/possible")  # such as "0-239"
_SPARE = 16
_OWN_SINCE = (6, 14)


def can_bound(release: str | None = None) -> bool:
    """Whether the setting belongs to the box. Before 6.14 it was the host's, and must stay as it is."""
    own = linux_since(_OWN_SINCE, platform.release() if release is None else release)
    return own and os.geteuid() == 0 and shutil.which("nsenter") is not None


def linux_since(version: tuple[int, int], release: str) -> bool:
    """Whether a kernel's release is of this version or later."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return numbers is not None and tuple(map(int, numbers.groups())) >= version


def highest_number(processes: int) -> int:
    """A number high enough that this many processes and threads always find one."""
    last = re.search(r"\d+$", _PROCESSORS.read_text()) if _PROCESSORS.exists() else None
    return max(_RESERVED + processes + _SPARE, _PER_PROCESSOR * (int(last[0]) + 1 if last else 1))


async def bound_processes(root: int, processes: int) -> bool:
    """Limits the box of `root` to a few hundred more processes; False if that is impossible here."""
    if not can_bound():
        return False
    write = f"echo {highest_number(processes)} > {_SETTING}"
    # In containers /proc/sys is often read-only.
    status, _ = await child.run("nsenter", "--target", str(root), "--pid", "--", "/bin/sh", "-c", write)
    return status == 0
