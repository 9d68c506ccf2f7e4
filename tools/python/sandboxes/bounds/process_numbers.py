"""A limit on a box's processes that the kernel enforces when root cannot create control groups.

RLIMIT_NPROC does not count root's processes, and a watchdog may be too late for a fork bomb. But since Linux
6.14 each process namespace has its own highest process number: when all numbers are taken, no fork succeeds.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

from tools import child

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
