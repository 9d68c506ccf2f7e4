"""Control groups, if this process may create them: limits that the kernel enforces for a whole box.

Takes limits. Returns a command line prefix that puts a process into new groups, or nothing if groups are not
available (most unprivileged users, most containers); the other limits hold without them. It must not know
kernels.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.python.sandboxes.sandbox import SandboxLimits

_ROOT = Path("/sys/fs/cgroup")
_NAME = "gpt-oss-python"
_OUTSIDERS = 4  # bubblewrap's own processes, and room for the kernel's fork
# The shell enters the groups before it becomes bubblewrap, so that every process of the box is in them.
_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 97; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one box."""

    folders: tuple[Path, ...]

    def entering(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` in these groups."""
        if not self.folders:
            return list(argv)
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, self.folders), "--", *argv]

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process here for lack of memory."""
        return any(
            line == f"oom_kill {count}" and count != "0"
            for folder in self.folders
            for line in _lines(folder / "memory.oom_control") + _lines(folder / "memory.events")
            for count in [line.rpartition(" ")[2]]
        )

    async def remove(self) -> None:
        """Removes the groups once the last process has left them."""
        for folder in self.folders:
            for pause in (0.0, 0.01, 0.05, 0.2, 0.5):
                await asyncio.sleep(pause)
                if _removed(folder):
                    break


def make_groups(limits: SandboxLimits) -> Groups:
    """New groups with these limits; without folders if none can be created."""
    name = f"{_NAME}-{os.getpid()}-{secrets.token_hex(6)}"
    files = limits.data_size + limits.temp_size + limits.shared_size  # files in memory count as memory here
    values = {"pids.max": limits.processes + _OUTSIDERS}
    if (_ROOT / "cgroup.controllers").exists():
        own = _own("")
        group = _made(own / name, {**values, "memory.max": limits.memory + files, "memory.swap.max": 0})
        return Groups((group,) if group else ())
    memory = {"memory.limit_in_bytes": limits.memory + files}
    made = [_made(_own(kind) / name, wanted) for kind, wanted in (("pids", values), ("memory", memory))]
    return Groups(tuple(folder for folder in made if folder))


def remove_stale() -> None:
    """Removes groups left by killed servers; groups that still hold processes cannot be removed."""
    for controller in ("", "pids", "memory"):
        for folder in _own(controller).glob(f"{_NAME}-*-*"):
            owner = folder.name.removeprefix(f"{_NAME}-").partition("-")[0]
            if not Path("/proc", owner).exists():
                _removed(folder)


def _own(controller: str) -> Path:
    """The group of this process; in a container, the root of the mounted hierarchy."""
    mounted = _ROOT / controller
    for line in _lines(Path("/proc/self/cgroup")):
        _, names, path = line.split(":", 2)
        if names == controller and (mounted / path.lstrip("/")).is_dir():
            return mounted / path.lstrip("/")
    return mounted


def _made(folder: Path, values: dict[str, int]) -> Path | None:
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
        _removed(folder)
        return None
    return folder


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a dying process is still counted; the caller tries again
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
