"""What all sandboxes for hostile code share: bubblewrap, docker and unsafe-local."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from tools.python.sandboxes.bounds.host_memory import SHORT_OF_MEMORY, host_memory
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bounds.watchdog import Watchdog
from tools.python.sandboxes.box import Box
from tools.python.sandboxes.folder import Folder
from tools.python.sandboxes.launch import KernelConnection, SandboxError


class Sandbox(ABC):
    """A way to run a kernel apart from the host, in boxes that have these limits."""

    isolated: ClassVar[bool]  # whether code in it has no network access

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._watchdog = Watchdog()
        self._checked = False
        self._checking = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    def within(self, memory: int) -> Self:
        """The same sandbox for boxes that may use at most this many bytes of memory."""
        narrower = copy(self)
        narrower._limits = replace(self._limits, memory=min(memory, self._limits.memory))
        return narrower

    async def check(self) -> None:
        """Raises ToolUnavailable with what to install or set if it cannot be used here. Cached."""
        async with self._checking:
            if not self._checked:
                await self._probe()
                self._checked = True

    async def start(self, connection: KernelConnection, data: Folder | None, skills: Path) -> Box:
        """A box whose kernel listens. It takes over `data`, the files of an earlier box of the session, and
        shows the folder `skills`, which it cannot change.

        Raises SandboxError, also on a machine that has no memory left for a box. After an error or a
        cancellation nothing is left running, and `data` still belongs to the caller.
        """
        await self.check()
        memory = host_memory()
        if memory is not None and memory.short:
            raise SandboxError(f"{SHORT_OF_MEMORY}; try again later")
        return await self._start(connection, data, skills)

    async def close(self) -> None:
        await asyncio.gather(*self._ending)

    @abstractmethod
    async def _probe(self) -> None:
        """Raises ToolUnavailable if no box can be started."""

    @abstractmethod
    async def _start(self, connection: KernelConnection, data: Folder | None, skills: Path | None) -> Box: ...

    async def _start_and_end(self) -> None:
        box = await self._start(KernelConnection(secrets.token_hex(16)), None, None)
        await box.discard()

    async def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        """Ends a box whose start failed or was cancelled, even if the caller is cancelled again."""
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)
