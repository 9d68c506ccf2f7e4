"""The sandbox with a container engine: one container for each kernel, of an image with ipykernel.

- files: /tmp, /mnt/data, /dev/shm and the folder of the kernel's sockets are tmpfs with a size, and
  everything else is read-only. This process reaches them through the container's root in /proc: in a bound
  folder of the host, files could only be counted, and code can hide files from a count.
- memory: per process by rlimits; for the whole box by the watchdog, and by the engine's control group.
- processes: by the engine, and by the watchdog, which also sums up processor time.
- system calls: by the engine's own filter, plus the filter of bubblewrap's boxes.

The engine and this process must see the same processes: a remote engine, or one in a virtual machine, does
not work.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import platform
import re
import secrets
import shutil
from functools import cache
from pathlib import Path

from tools import child
from tools.python.sandboxes import launch, seccomp
from tools.python.sandboxes.bounds.cgroups import Groups
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bounds.watchdog import Watchdog
from tools.python.sandboxes.box import RunningBox
from tools.python.sandboxes.folder import Folder
from tools.python.sandboxes.launch import KernelConnection, SandboxError, Spawned
from tools.python.sandboxes.sandbox import Sandbox
from tools.skills import MOUNT
from tools.tool import ToolUnavailable

DEFAULT_IMAGE = "quay.io/jupyter/scipy-notebook"
_NAME = "gpt-oss-python-"
_OWNER = re.compile(r"[0-9a-f]{8}\.[0-9]+\.[0-9]+")
_HOME = "/tmp/home"
_PATH = "/opt/conda/bin:/usr/local/bin:/usr/bin:/bin"  # where images keep their Python
_OTHER_USER = 1000  # in the box, if this process is root: never the container's root
_KILLED = 128 + 9  # the client's exit status if the container's process was killed


class Docker(Sandbox):
    isolated = True

    def __init__(self, limits: SandboxLimits, *, image: str = DEFAULT_IMAGE, command: str = "docker") -> None:
        super().__init__(limits)
        self._image = image
        self._command = command

    async def _probe(self) -> None:
        """Starts and ends one real box, because images and engines vary too much for a list of checks."""
        need = "The python tool's docker sandbox needs"
        if shutil.which(self._command) is None:
            raise ToolUnavailable(f"{need} the `{self._command}` command.")
        code, words = await _run(self._command, "version", "--format", "{{.Server.Version}}")
        if code != 0:
            raise ToolUnavailable(f"{need} a running engine. ({self._command} printed: {words})")
        code, _ = await _run(self._command, "image", "inspect", "--format", "{{.Id}}", self._image)
        if code != 0:
            raise ToolUnavailable(
                f"{need} its image: `{self._command} pull {self._image}`, or one of your own with "
                "--python-image."
            )
        await self._remove_stale()
        try:
            await self._start_and_end()
        except SandboxError as error:
            raise ToolUnavailable(
                f"The python tool cannot use a container of {self._image} here. (It printed: {error})"
            ) from error

    async def _remove_stale(self) -> None:
        """Removes containers of killed servers; nearly all have ended with their server."""
        listing = ("ps", "--all", "--filter", f"name={_NAME}", "--format", "{{.Names}}")
        _, listed = await _run(self._command, *listing)
        for name in listed.split():
            if name.startswith(_NAME) and owner_is_gone(name.removeprefix(_NAME).partition("-")[0]):
                await _run(self._command, "rm", "--force", name)

    async def _start(
        self, connection: KernelConnection, data: Folder | None, skills: Path | None
    ) -> DockerBox:
        name = f"{_NAME}{owner_mark()}-{secrets.token_hex(8)}"
        # Not cancelled half-way: the engine would go on to create an orphaned container.
        starting = asyncio.create_task(self._box(name, connection, skills))
        try:
            box = await asyncio.shield(starting)
        except BaseException:
            await self._end(_abandon(starting))
            raise
        if data is not None:
            await box.take_over(data)
        return box

    async def _box(self, name: str, connection: KernelConnection, skills: Path | None) -> DockerBox:
        places, machine = (launch.SOCKET_FOLDER, _HOME), platform.machine()
        # On other machines the engine's own filter must suffice.
        rules = base64.b64encode(seccomp.program(machine)).decode() if seccomp.supported(machine) else ""
        send = launch.first_line(connection, *places, self._limits, count_processes=False, call_filter=rules)
        spawned = await launch.spawn(self.command_line(name, skills), send=send, env=os.environ)
        try:
            await spawned.ready()
            _, pid = await _run(self._command, "inspect", "--format", "{{.State.Pid}}", name)
            box = self._reached(name, pid, spawned)
        except BaseException:
            await spawned.end()
            await _run(self._command, "rm", "--force", name)
            raise
        if not connection.path(box.sockets, "shell").is_socket():
            await box.discard()
            raise SandboxError(f"process {pid} of this machine is not the container's: is the engine remote?")
        return box

    def _reached(self, name: str, pid: str, spawned: Spawned) -> DockerBox:
        try:
            return DockerBox(self._command, name, int(pid), spawned, self._limits, self._watchdog)
        except ValueError as error:
            raise SandboxError(f"the engine does not report the container's process: {pid}") from error
        except OSError as error:
            what = f"the container cannot be reached through /proc/{pid}/root"
            raise SandboxError(f"{what}: {error.strerror}") from error

    def command_line(self, name: str, skills: Path | None = None) -> list[str]:
        limits, user = self._limits, os.getuid() or _OTHER_USER
        # Files are in memory, so they count as memory here.
        memory = str(limits.memory + limits.files_size)
        argv = [
            *(self._command, "run", "--rm", "--interactive", "--name", name, "--pull", "never"),
            # A log would be an unlimited file of the host; a health check, a process next to the kernel.
            *("--log-driver", "none", "--no-healthcheck"),
            # The engine copies the host's name servers into a container even if that has no network.
            *("--network", "none", "--dns", "127.0.0.1", "--hostname", "sandbox"),
            *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--user", f"{user}:{user}", "--pids-limit", str(limits.processes)),
            *("--memory", memory, "--memory-swap", memory),
            *("--shm-size", str(limits.shared_size), "--ipc", "private"),
            *("--workdir", launch.WORK_FOLDER, "--entrypoint", "python3"),
        ]
        for folder, size in (
            (launch.WORK_FOLDER, limits.data_size),
            ("/tmp", limits.temp_size),
            (launch.SOCKET_FOLDER, 65536),
        ):
            # exec: compiled programs must run; the engine's default is noexec.
            options = f"rw,exec,nosuid,nodev,mode=0700,uid={user},gid={user}"
            argv += ["--tmpfs", f"{folder}:{options},size={size},nr_inodes={limits.data_files}"]
        if skills is not None:
            argv += ["--volume", f"{skills}:{MOUNT}:ro"]
        for variable, value in {**launch.environment("python3", _HOME), "PATH": _PATH}.items():
            argv += ["--env", f"{variable}={value}"]
        return [*argv, self._image, "-I", "-c", launch.program()]


class DockerBox(RunningBox):
    """A running container, and the client process that represents it."""

    def __init__(
        self, command: str, name: str, root: int, spawned: Spawned, limits: SandboxLimits, watchdog: Watchdog
    ) -> None:
        super().__init__(spawned, root, Groups(()), limits, watchdog)
        self._command = command
        self._name = name
        self._killed = False

    def kill(self) -> None:
        self._killed = True
        super().kill()

    async def wait(self) -> None:
        ended = await self._spawned.process.wait()
        if ended == _KILLED and not self._killed and await self._out_of_memory():
            self._watched.verdict = self._limits.over_memory
        self.kill()  # in case only the client ended
        await super().wait()
        await _run(self._command, "rm", "--force", self._name)  # already done, unless the client was killed

    async def _out_of_memory(self) -> bool:
        """Whether the engine saw an out-of-memory kill; it forgets the container, but not its events."""
        _, seen = await _run(
            *(self._command, "events", "--since", "10m", "--until", "0s", "--format", "{{.Action}}"),
            *("--filter", f"container={self._name}", "--filter", "event=oom"),
        )
        return "oom" in seen.split()


async def _abandon(starting: asyncio.Task[DockerBox]) -> None:
    """Ends a box whose start was cancelled; a box whose start failed has already ended."""
    try:
        box = await starting
    except (SandboxError, OSError):
        return
    await box.discard()


async def _run(*argv: str) -> tuple[int, str]:
    try:
        return await child.run(*argv)
    except OSError as error:
        raise SandboxError(f"{argv[0]}: {error.strerror}") from error


def owner_mark() -> str:
    """Marks this process in a container's name, to recognise the leftovers of a killed server."""
    return f"{_numbering()}.{os.getpid()}.{_started(os.getpid())}"


def owner_is_gone(mark: str) -> bool:
    """False also if that is unknown: a server in another container may be invisible."""
    if _OWNER.fullmatch(mark) is None:
        return False
    numbering, pid, started = mark.split(".")
    return numbering == _numbering() and _started(int(pid)) != int(started)


@cache
def _numbering() -> str:
    """The scope of process ids: ids of another boot or another namespace belong to other processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]


def _started(pid: int) -> int:
    """When a process started, in ticks since boot, because its number can be reused. 0: no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
