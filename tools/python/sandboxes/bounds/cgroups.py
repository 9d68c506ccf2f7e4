"""Control groups, if this process may create them: limits that the kernel enforces for a whole box.

Returns a command line prefix that puts a process into new groups, or nothing (most unprivileged users, most
containers); the other limits hold without them. It must not know kernels.
"""

import asyncio
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.python.sandboxes.bounds.limits import SandboxLimits

_ROOT = Path("/sys/fs/cgroup")
_NAME = "gpt-oss-python"
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
_OUTSIDERS = 4  # bubblewrap's own processes, and room for the kernel's fork
# The shell enters the groups before it becomes bubblewrap, so that every process of the box is in them.
_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 97; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Groups:
    folders: tuple[Path, ...]

    def entering(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` in these groups."""
        if not self.folders:
            return list(argv)
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, self.folders), "--", *argv]

    @property
    def limit_memory(self) -> bool:
        return any((folder / name).exists() for folder in self.folders for name in _MEMORY_LIMITS)

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process here for lack of memory."""
        return any(
            re.search(r"^oom_kill [1-9]", read(folder / name), re.MULTILINE)
            for folder in self.folders
            for name in ("memory.oom_control", "memory.events")
        )

    async def remove(self) -> None:
        """Removes the groups once the last process has left them."""
        for folder in self.folders:
            for pause in (0.0, 0.01, 0.05, 0.2, 0.5):
                await asyncio.sleep(pause)
                if _remove(folder):
                    break


def make_groups(limits: SandboxLimits) -> Groups:
    """New groups with these limits; without folders if none can be created."""
    name = f"{_NAME}-{os.getpid()}-{secrets.token_hex(6)}"
    total = limits.memory + limits.files_size  # files in memory count as memory here
    values = {"pids.max": limits.processes + _OUTSIDERS}
    if (_ROOT / "cgroup.controllers").exists():
        values |= {"memory.max": total, "memory.swap.max": 0}
        groups = (_make(folder / name, values) for folder in _delegated())
        group = next((folder for folder in groups if folder), None)
        return Groups((group,) if group else ())
    memory = {"memory.limit_in_bytes": total}
    folders = (_make(own_group("pids") / name, values), _make(own_group("memory") / name, memory))
    return Groups(tuple(folder for folder in folders if folder))


def remove_stale() -> None:
    """Removes groups left by killed servers; groups that still hold processes cannot be removed."""
    parents = [own_group("pids"), own_group("memory"), *_delegated()]
    for parent in parents:
        for folder in parent.glob(f"{_NAME}-*-*"):
            owner = folder.name.removeprefix(f"{_NAME}-").partition("-")[0]
            if not Path("/proc", owner).exists():
                _remove(folder)


def own_group(controller: str) -> Path:
    """The group of this process; in a container, the root of the mounted hierarchy."""
    mounted = _ROOT / controller
    for line in read(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        if names == controller and (mounted / path.lstrip("/")).is_dir():
            return mounted / path.lstrip("/")
    return mounted


def _delegated() -> list[Path]:
    """The unified groups in which this process may find room: its own and those above.

    A group that holds processes cannot limit groups below it, and a server's own group nearly always holds
    some. But systemd's slices do limit theirs, and each user may make groups in the slices of their session.
    """
    own = own_group("")
    above = [folder for folder in own.parents if folder.is_relative_to(_ROOT)]
    shared = ((folder, read(folder / "cgroup.subtree_control").split()) for folder in (own, *above))
    return [folder for folder, controllers in shared if {"memory", "pids"} <= set(controllers)]


def _make(folder: Path, values: dict[str, int]) -> Path | None:
    """The group with its values set, or None if that is not allowed or the controller is missing."""
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        for name, value in values.items():
            if name == "memory.swap.max" and not (folder / name).exists():
                continue  # a kernel without swap accounting
            (folder / name).write_text(str(value))
    except OSError:
        _remove(folder)
        return None
    return folder


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a dying process is still counted; the caller tries again
    return True


def read(path: Path) -> str:
    """The text of a file; "" if it is not on this machine."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
