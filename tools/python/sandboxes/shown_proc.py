"""The files of /proc about the whole machine, as a box sees them: the box's own size, and no load.

Takes limits. Returns contents by name. Programs read these files to count processors and to see how much
memory they may use, so they cannot just be empty. A box can still ask the kernel itself (sysinfo), which
nothing short of a kernel of its own could prevent.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tools.python.sandboxes.bounds.limits import SandboxLimits

_STAT = Path("/proc/stat")
_OTHERS = (
    *("Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Dirty", "AnonPages"),
    *("Mapped", "Shmem", "Slab", "SReclaimable", "SUnreclaim"),
)


def shown_proc(limits: SandboxLimits) -> dict[str, str]:
    return {
        "/proc/loadavg": "0.00 0.00 0.00 1/1 1\n",
        "/proc/meminfo": _meminfo(limits.memory // 1024),
        "/proc/stat": _stat(os.cpu_count() or 1),
    }


def _meminfo(kilobytes: int) -> str:
    sizes = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), kilobytes) | dict.fromkeys(_OTHERS, 0)
    return "".join(f"{name + ':':<16}{size:>8} kB\n" for name, size in sizes.items())


def _stat(processors: int) -> str:
    # When the machine started: `ps` and psutil need it to compute when a process did.
    started = re.search(r"^btime \d+$", _STAT.read_text(), re.MULTILINE)
    return "\n".join([
        *(f"{name} 0 0 0 0 0 0 0 0 0 0" for name in ("cpu ", *(f"cpu{at}" for at in range(processors)))),
        *("intr 0", "ctxt 0", started[0] if started else "btime 0"),
        *("processes 1", "procs_running 1", "procs_blocked 0", "softirq 0 0 0 0 0 0 0 0 0 0 0", ""),
    ])  # fmt: skip
