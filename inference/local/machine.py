"""How much memory this process can take: what the kernel's files state of the machine and its container."""

import os
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.25  # of the free memory, for keys and values
_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# For both versions of control groups: the limit, the usage, and the part of it that is evictable files.
_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def machine_memory() -> int:
    """Bytes for keys and values that leave the machine, or the container, enough memory."""
    return int(free_memory() * SHARE)


def free_memory() -> int:
    free = _of_machine("MemAvailable")
    free = _physical_memory() // 2 if free is None else free  # assume that half of it is free
    return min([free, *(max(0, most - used) for most, used in _groups())])


def machine_share() -> int:
    """The same share of all the memory that the machine, or the container, has: it never varies."""
    total = _of_machine("MemTotal") or _physical_memory()
    return int(min([total, *(most for most, _ in _groups())]) * SHARE)


def _of_machine(name: str) -> int | None:
    """None where the system is not Linux."""
    kilobytes = _numbers(_PROC / "meminfo").get(f"{name}:")
    return None if kilobytes is None else kilobytes << 10


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def _groups() -> Iterator[tuple[int, int]]:
    """The limit and the use of each limited group; the kernel ends processes that exceed a limit."""
    for line in _text(_PROC / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in {*controllers.split(",")} & _FILES.keys():
            limit, used, files = _FILES[controller]
            for group in _upwards(_GROUPS / controller, path):
                most, now = _text(group / limit).strip(), _text(group / used).strip()
                if most.isdigit() and now.isdigit():
                    kept = _numbers(group / "memory.stat").get(files, 0)
                    yield int(most), int(now) - kept


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """A group and its parents. In a container the path may be the host's, and its own group the root."""
    group = root / path.lstrip("/") if ".." not in path else root
    yield group
    while group != root:
        group = group.parent
        yield group


def _numbers(path: Path) -> dict[str, int]:
    """Reads a file of lines that begin with a name and a number."""
    words = [line.split() for line in _text(path).splitlines()]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""  # not on this kind of system
