"""How much memory this machine, or the container that limits it, has left: boxes end before the server
suffers.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tools.python.sandboxes.bounds.cgroups import own_group, read
from tools.python.sandboxes.bounds.limits import MIB

SHORT_OF_MEMORY = "the machine ran short of memory"
_MEMINFO = Path("/proc/meminfo")
_LEAST, _MOST, _PART = 256 * MIB, 2048 * MIB, 16
# The files of a control group: limit, usage, and the name in memory.stat of what the kernel can take back.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class HostMemory:
    total: int
    available: int

    @property
    def floor(self) -> int:
        """What must stay available: a sixteenth of the machine, at least 256 MiB and at most 2 GiB."""
        return max(_LEAST, min(_MOST, self.total // _PART))

    @property
    def short(self) -> bool:
        return self.available < self.floor


def host_memory() -> HostMemory | None:
    """The memory of the machine or of this server's control group, whichever has less left."""
    known = [memory for memory in (_machine(), _group()) if memory is not None]
    return min(known, key=lambda memory: memory.available, default=None)


def _machine() -> HostMemory | None:
    sizes = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", read(_MEMINFO), re.MULTILINE))
    if len(sizes) < 2:
        return None
    return HostMemory(1024 * int(sizes["MemTotal"]), 1024 * int(sizes["MemAvailable"]))


def _group() -> HostMemory | None:
    for controller, (limit, usage, reclaimable) in (("", _V2), ("memory", _V1)):
        folder = own_group(controller)
        most, used = read(folder / limit).strip(), read(folder / usage).strip()
        if most.isdigit() and used.isdigit():
            idle = re.search(rf"^{reclaimable} (\d+)$", read(folder / "memory.stat"), re.MULTILINE)
            return HostMemory(int(most), int(most) - int(used) + (int(idle[1]) if idle else 0))
    return None
