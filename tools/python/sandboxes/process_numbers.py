"""A bound on a box's processes that the kernel holds, where root has no control groups to make.

RLIMIT_NPROC does not count root's processes, and a watchdog sees a fork bomb only when it gets to look. But
since Linux 6.14 each process namespace has a highest process number of its own: when all are taken, no fork
succeeds. In: the host's name (pid) of a box's first process. Out: whether its numbers are bounded now.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
from pathlib import Path

_SETTING = Path("/proc/sys/kernel/pid_max")
_RESERVED = 300  # lower numbers are given out once only: what has run long has the others alone
_PER_PROCESSOR = 8  # the kernel takes no less for each processor that there could be
_PROCESSORS = Path("/sys/devices/system/cpu/possible")  # such as "0-239"
_SPARE = 16
_OWN_SINCE = (6, 14)


def can_bound(release: str | None = None) -> bool:
    """Whether the setting belongs to a box: before that it was one of the whole host, never to be touched."""
    version = re.match(r"(\d+)\.(\d+)", platform.release() if release is None else release)
    own = version is not None and tuple(map(int, version.groups())) >= _OWN_SINCE
    return own and os.geteuid() == 0 and shutil.which("nsenter") is not None


def highest_number(processes: int) -> int:
    """Such that there are always numbers for so many processes and threads."""
    last = re.search(r"\d+$", _PROCESSORS.read_text()) if _PROCESSORS.exists() else None
    return max(_RESERVED + processes + _SPARE, _PER_PROCESSOR * (int(last[0]) + 1 if last else 1))


async def bound_processes(root: int, processes: int) -> bool:
    """Has the kernel hold the box of `root` to some hundred processes and threads more than `processes`.

    False: not possible here.
    """
    if not can_bound():
        return False
    write = f"echo {highest_number(processes)} > {_SETTING}"
    process = await asyncio.create_subprocess_exec(
        *("nsenter", "--target", str(root), "--pid", "--", "/bin/sh", "-c", write),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,  # in containers /proc/sys is often read-only
    )
    return await process.wait() == 0
