"""No sandbox: the kernel runs as this user, with access to this user's files, network and environment.

For a disposable machine: it is chosen only by its name, and logs a warning at each start. The rlimits and the
watchdog hold for code that does not try to escape them; a program that leaves the process group and outlives
its parent may survive the kernel.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tools.python.sandboxes import launch
from tools.python.sandboxes.bounds.limits import MIB, SandboxLimits
from tools.python.sandboxes.bounds.usage import measure
from tools.python.sandboxes.bounds.watchdog import Watchdog, Watched
from tools.python.sandboxes.box import Box
from tools.python.sandboxes.folder import Folder
from tools.python.sandboxes.interpreter import Interpreter, examine
from tools.python.sandboxes.launch import KernelConnection, Spawned
from tools.python.sandboxes.sandbox import Sandbox

_log = logging.getLogger(__name__)


class UnsafeLocal(Sandbox):
    isolated = False

    def __init__(self, limits: SandboxLimits, *, interpreter: str) -> None:
        super().__init__(limits)
        self._wanted = interpreter
        self._interpreter: Interpreter | None = None

    async def _probe(self) -> None:
        self._interpreter = await examine(self._wanted)

    async def _start(
        self, connection: KernelConnection, data: Folder | None, skills: Path | None
    ) -> LocalBox:
        _log.warning(
            "UNSAFE: a Python kernel starts without a sandbox (--python unsafe-local). "
            "Code that the model writes can read, change and send whatever this user can."
        )
        assert self._interpreter is not None
        files = data if isinstance(data, HostData) else HostData.make()
        # A short name, because a socket's path must be below 108 bytes.
        sockets = Path(tempfile.mkdtemp(prefix="gpt-oss-python-run-"))
        try:
            spawned = await self._spawn(self._interpreter, connection, files, sockets)
        except BaseException:
            shutil.rmtree(sockets, ignore_errors=True)
            if files is not data:
                files.close()
            raise
        return LocalBox(spawned, sockets, files, self._limits, self._watchdog)

    async def _spawn(
        self, interpreter: Interpreter, connection: KernelConnection, files: HostData, sockets: Path
    ) -> Spawned:
        executable, home = str(interpreter.executable), str(sockets / "home")
        send = launch.first_line(connection, str(sockets), home, self._limits, count_processes=False)
        argv = [executable, "-I", "-c", launch.program()]
        env = launch.environment(executable, home)
        spawned = await launch.spawn(argv, send=send, env=env, cwd=str(files.path))
        try:
            await spawned.ready()
        except BaseException:
            await spawned.end()
            raise
        return spawned


class HostData(Folder):
    """A session's files in a private folder of the host's disk. Closing it removes them.

    The watchdog counts them, so a fast writer can exceed the limits a little before its box is ended.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor)
        self.path = path

    @classmethod
    def make(cls) -> HostData:
        path = Path(tempfile.mkdtemp(prefix="gpt-oss-python-data-"))
        return cls(Folder.at(path).descriptor, path)

    @property
    def in_memory(self) -> int:
        return 0

    def close(self) -> None:
        if self.descriptor >= 0:
            super().close()
            shutil.rmtree(self.path, ignore_errors=True)  # does not follow links

    def over(self, limits: SandboxLimits) -> str | None:
        """Why the box must end, if its files are too many or too large."""
        size, count = self.usage(limits.data_files)
        if count > limits.data_files:
            return limits.over_files
        if size > limits.data_size:
            return f"its files were larger than {limits.data_size // MIB} MiB"
        return None


class LocalBox(Box):
    def __init__(
        self, spawned: Spawned, sockets: Path, data: HostData, limits: SandboxLimits, watchdog: Watchdog
    ) -> None:
        self._process = spawned.process
        watched = Watched(self._process.pid, limits, self.kill, lambda: data.over(limits), own_network=False)
        super().__init__(spawned, sockets, data, watched, watchdog)

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
        shutil.rmtree(self.sockets, ignore_errors=True)
