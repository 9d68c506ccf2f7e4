"""The sandbox where a container engine runs: one container for each kernel.

In: an image with ipykernel, limits. Out: boxes held by the engine: no network, a read-only system, no
capabilities, limits on memory, processes and processor time. The kernel's sockets and /mnt/data are folders
of the host bound into the container; the watchdog counts the files, and the engine holds all other limits.
The engine and this process must share a file system and a kernel: a remote engine, or one in a virtual
machine, does not do.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from tools.python.folder import Folder
from tools.python.host_folder import HostData, host_data, make_socket_folder, remove_socket_folder
from tools.python.sandbox import SOCKET_FOLDER, WORK_FOLDER, Connection, Limits, SandboxError
from tools.python.spawn import Spawned, environment, launcher_input, launcher_source, spawn
from tools.python.watchdog import Watchdog, Watched
from tools.tool import ToolUnavailable

DEFAULT_IMAGE = "quay.io/jupyter/scipy-notebook"
_HOME = "/tmp/home"
_ROOTLESS_USER = 1000  # inside, when this process is root: never the container's root


class Docker:
    """Makes boxes with a `docker` command (Docker, or Podman's stand-in for it)."""

    name = "docker"
    isolated = True

    def __init__(self, limits: Limits, *, image: str = DEFAULT_IMAGE, command: str = "docker") -> None:
        self._limits = limits
        self._image = image
        self._command = command
        self._checked = False
        self._watchdog = Watchdog()

    async def check(self) -> None:
        if self._checked:
            return
        if shutil.which(self._command) is None:
            raise ToolUnavailable(f"The python tool's docker sandbox needs the `{self._command}` command.")
        code, words = await _run(self._command, "version", "--format", "{{.Server.Version}}")
        if code != 0:
            raise ToolUnavailable(
                f"The python tool's docker sandbox needs a running engine. ({self._command} said: {words})"
            )
        code, _ = await _run(self._command, "image", "inspect", self._image)
        if code != 0:
            raise ToolUnavailable(
                f"The python tool's docker sandbox needs its image: `{self._command} pull {self._image}`."
            )
        self._checked = True

    async def start(self, connection: Connection, data: Folder | None) -> DockerBox:
        await self.check()
        files, sockets = host_data(data), make_socket_folder()
        name = f"gpt-oss-python-{secrets.token_hex(8)}"
        try:
            spawned = await self._spawn(name, connection, files, sockets)
        except BaseException:
            remove_socket_folder(sockets)
            if files is not data:
                files.close()
            raise
        return DockerBox(self._command, name, spawned, sockets, files, self._limits, self._watchdog)

    async def close(self) -> None:
        """Nothing is kept between boxes."""

    def command_line(self, name: str, data: Path, sockets: Path) -> list[str]:
        """The engine's command for one box."""
        limits, user = self._limits, os.getuid() or _ROOTLESS_USER
        memory = limits.memory + limits.temp_size + limits.shared_size  # files in memory count as memory here
        argv = [
            *(self._command, "run", "--rm", "--interactive", "--name", name, "--init"),
            *("--network", "none", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", f"{user}:{user}"),
            *("--memory", str(memory), "--memory-swap", str(memory), "--pids-limit", str(limits.processes)),
            *("--shm-size", str(limits.shared_size), "--ipc", "private"),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.temp_size},nr_inodes={limits.data_files}"),
            *("--volume", f"{data}:{WORK_FOLDER}:rw", "--volume", f"{sockets}:{SOCKET_FOLDER}:rw"),
            *("--workdir", WORK_FOLDER, "--entrypoint", "python"),
        ]
        for variable, value in environment("/opt/conda/bin/python", _HOME).items():
            argv += ["--env", f"{variable}={value}"]
        return [*argv, self._image, "-I", "-c", launcher_source()]

    async def _spawn(self, name: str, connection: Connection, files: HostData, sockets: Path) -> Spawned:
        if os.getuid() == 0:
            for folder in (files.path, sockets):
                os.chown(folder, _ROOTLESS_USER, _ROOTLESS_USER)
        send = launcher_input(connection, SOCKET_FOLDER, _HOME, self._limits, count_processes=False)
        spawned = await spawn(self.command_line(name, files.path, sockets), send=send, env=os.environ)
        try:
            await spawned.ready()
        except BaseException:
            await spawned.end()
            await _run(self._command, "rm", "--force", name)
            raise
        return spawned


class DockerBox:
    """A running container and the client process that stands for it."""

    def __init__(
        self,
        command: str,
        name: str,
        spawned: Spawned,
        sockets: Path,
        data: HostData,
        limits: Limits,
        watchdog: Watchdog,
    ) -> None:
        self._command = command
        self._name = name
        self._spawned = spawned
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._removal: asyncio.Task[tuple[int, str]] | None = None
        self.sockets = sockets
        self.data: Folder = data
        # The tree below the client process is empty: only the files are watched here.
        self._watched = Watched(
            spawned.process.pid, limits, self._kill_soon, lambda: data.over(limits), spare=64
        )
        watchdog.add(self._watched)

    @property
    def verdict(self) -> str | None:
        return self._watched.verdict

    def use(self, running: bool) -> None:
        self._watched.running = running

    def kill(self) -> None:
        """Asks the engine to remove the container; `wait` sees it done."""
        if self._removal is None:
            self._removal = asyncio.create_task(_run(self._command, "rm", "--force", self._name))

    async def wait(self) -> None:
        await self._spawned.process.wait()
        self._spawned.let_go()
        self.kill()
        assert self._removal is not None
        await self._removal
        self._watchdog.remove(self._watched)
        remove_socket_folder(self.sockets)

    def _kill_soon(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is left to protect
            self._loop.call_soon_threadsafe(self.kill)


async def _run(*argv: str) -> tuple[int, str]:
    """A short command's exit status and last words."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise SandboxError(f"{argv[0]}: {error.strerror}") from error
    words, _ = await process.communicate()
    lines = words.decode("utf-8", "replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else ""
