"""The protocol of the sandboxes for hostile code: bubblewrap, docker and unsafe-local.

Takes limits and the parameters of a box. Returns a `Box`: a started kernel process, the folder of its sockets
and the folder of its files. It must not know Jupyter's messages, sessions or the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from tools.python.sandboxes.bounds.host_memory import SHORT_OF_MEMORY, host_memory
from tools.python.sandboxes.folder import Folder

WORK_FOLDER = "/mnt/data"  # the tool's declaration names it
SOCKET_FOLDER = "/run/kernel"  # where the kernel's sockets are inside a box


class SandboxError(Exception):
    """A box could not be started; the message states what was observed."""


def refuse_if_short() -> None:
    """Refuses to start a box on a machine that has no memory left for it."""
    memory = host_memory()
    if memory is not None and memory.short:
        raise SandboxError(f"{SHORT_OF_MEMORY}; try again later")


@dataclass(frozen=True, slots=True)
class KernelConnection:
    """How to reach the kernel: five unix sockets in one folder, as Jupyter numbers them."""

    key: str
    ports: dict[str, int] = field(
        default_factory=lambda: {"shell": 1, "iopub": 2, "stdin": 3, "hb": 4, "control": 5}
    )
    prefix: str = "s"

    def configuration(self, folder: str) -> dict[str, Any]:
        """The kernel's connection; `folder` is the path of the sockets on the kernel's side."""
        ports = {f"{name}_port": number for name, number in self.ports.items()}
        return {"transport": "ipc", "ip": f"{folder}/{self.prefix}", "key": self.key, **ports}

    def path(self, folder: Path, channel: str) -> Path:
        return folder / f"{self.prefix}-{self.ports[channel]}"


class Box(Protocol):
    """One running kernel process with everything that it started."""

    @property
    def sockets(self) -> Path:
        """The folder of its sockets, as this process reaches it."""
        ...

    @property
    def data(self) -> Folder:
        """Its /mnt/data, which outlives the box. The box's owner closes it or hands it to the next box."""
        ...

    @property
    def held(self) -> int:
        """The bytes of memory that it holds, with its files if they are in memory."""
        ...

    @property
    def verdict(self) -> str | None:
        """Why a limit ended the box, in words; None if none did."""
        ...

    def use(self, running: bool) -> None:
        """Marks whether code is running now; an unused box is watched less often."""
        ...

    def kill(self) -> None:
        """Kills every process in it immediately, without waiting."""
        ...

    def end(self, why: str) -> None:
        """The same, for a reason that becomes the verdict. It may wait for a check of the watchdog."""
        ...

    async def wait(self) -> None:
        """Returns when its main process has ended and its resources outside are released."""
        ...


class Sandbox(Protocol):
    """A way to run a kernel apart from the host."""

    @property
    def name(self) -> str: ...

    @property
    def isolated(self) -> bool:
        """Whether code in it has no network access."""
        ...

    async def check(self) -> None:
        """Raises ToolUnavailable with what to install or set if it cannot be used here. Cached."""
        ...

    def within(self, memory: int) -> Self:
        """The same sandbox for boxes that may use at most so many bytes of memory."""
        ...

    async def start(self, connection: KernelConnection, data: Folder | None) -> Box:
        """A box whose kernel listens. It takes over `data`, the files that an earlier box of the session
        left.

        Raises SandboxError. After an error or a cancellation nothing is left running, and `data` still
        belongs to the caller.
        """
        ...

    async def close(self) -> None: ...
