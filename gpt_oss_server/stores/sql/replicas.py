"""The names of processes that share a database, and whether one is known to be dead.

A process that was killed holds its runs until their leases end. If it ran on this machine, another process
here can see that it is dead, and need not wait.
"""

import os
import secrets
import socket
from dataclasses import dataclass, field


def _machine() -> str:
    """The host, and on Linux its space of process ids: containers of one name differ in it."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()}{space}"


def _new_start() -> str:
    """Distinguishes processes that get the same id, one after the other, and the servers of one process."""
    start = secrets.token_hex(4)
    _STARTED_HERE.add(start)
    return start


_STARTED_HERE: set[str] = set()  # by this process


@dataclass(frozen=True, slots=True)
class Replica:
    machine: str = field(default_factory=_machine)
    process: int = field(default_factory=os.getpid)
    start: str = field(default_factory=_new_start)

    def __str__(self) -> str:
        return f"{self.machine}/{self.process}/{self.start}"

    def knows_dead(self, other: str) -> bool:
        """Whether the process of this name has certainly ended."""
        machine, process, start = other.rsplit("/", 2)
        if machine != self.machine:
            return False
        if int(process) == self.process:  # an earlier process with this id, unless this one started it
            return start not in _STARTED_HERE
        return os.name == "posix" and not _lives(int(process))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
