"""No sandbox: the kernel runs as this user, with access to this user's files, network and environment.

Takes an interpreter and limits. Returns boxes without protection. It is meant for a disposable machine, is
chosen only by its name, and logs a warning at each start. The rlimits and the watchdog hold for code that
does not try to escape them; a program that leaves the process group and outlives its parent may survive the
kernel.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path

from tools.python.sandboxes.bounds.limits import Limited, SandboxLimits
from tools.python.sandboxes.bounds.usage import measure
from tools.python.sandboxes.bounds.watchdog import Watchdog, Watched
from tools.python.sandboxes.folder import Folder
from tools.python.sandboxes.host_folder import HostData, host_data, make_socket_folder, remove_socket_folder
from tools.python.sandboxes.interpreter import Interpreter, examine
from tools.python.sandboxes.sandbox import KernelConnection, refuse_if_short
from tools.python.sandboxes.spawn import Spawned, environment, launcher_input, launcher_source, spawn

_log = logging.getLogger(__name__)


class UnsafeLocal(Limited):
    """Starts kernels without any protection."""

    name = "unsafe-local"
    isolated = False

    def __init__(self, limits: SandboxLimits, *, interpreter: str) -> None:
        super().__init__(limits)
        self._wanted = interpreter
        self._interpreter: Interpreter | None = None
        self._watchdog = Watchdog()

    async def check(self) -> None:
        if self._interpreter is None:
            self._interpreter = await examine(self._wanted)

    async def start(self, connection: KernelConnection, data: Folder | None) -> LocalBox:
        _log.warning(
            "UNSAFE: a Python kernel starts without a sandbox (--python unsafe-local). "
            "Code that the model writes can read, change and send whatever this user can."
        )
        await self.check()
        refuse_if_short()
        assert self._interpreter is not None
        files = host_data(data)
        sockets = make_socket_folder()
        try:
            spawned = await self._spawn(self._interpreter, connection, files, sockets)
        except BaseException:
            remove_socket_folder(sockets)
            if files is not data:
                files.close()
            raise
        return LocalBox(spawned, sockets, files, self._limits, self._watchdog)

    async def close(self) -> None:
        """Nothing to release."""

    async def _spawn(
        self, interpreter: Interpreter, connection: KernelConnection, files: HostData, sockets: Path
    ) -> Spawned:
        executable, home = str(interpreter.executable), str(sockets / "home")
        send = launcher_input(connection, str(sockets), home, self._limits, count_processes=False)
        argv = [executable, "-I", "-c", launcher_source()]
        spawned = await spawn(argv, send=send, env=environment(executable, home), cwd=str(files.path))
        try:
            await spawned.ready()
        except BaseException:
            await spawned.end()
            raise
        return spawned


class LocalBox:
    """A kernel's process and everything that it started."""

    def __init__(
        self,
        spawned: Spawned,
        sockets: Path,
        data: HostData,
        limits: SandboxLimits,
        watchdog: Watchdog,
    ) -> None:
        self._process = spawned.process
        self._spawned = spawned
        self._watchdog = watchdog
        self.sockets = sockets
        self.data: Folder = data
        self._watched = Watched(
            self._process.pid, limits, self.kill, lambda: data.over(limits), own_network=False
        )
        watchdog.add(self._watched)

    @property
    def held(self) -> int:
        return self._watched.held

    @property
    def verdict(self) -> str | None:
        return self._watched.verdict

    def use(self, running: bool) -> None:
        self._watched.running = running

    def end(self, why: str) -> None:
        self._watched.end(why)

    def kill(self) -> None:
        if self._process.returncode is not None:
            return
        pid = self._process.pid
        for child in measure(pid, 10_000).ids:
            if child != pid:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        for end in (os.killpg, os.kill):  # the kernel leads its own group
            with suppress(ProcessLookupError):
                end(pid, signal.SIGKILL)

    async def wait(self) -> None:
        await self._process.wait()
        self._spawned.let_go()
        self._watchdog.remove(self._watched)
        remove_socket_folder(self.sockets)
