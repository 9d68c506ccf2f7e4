"""The default sandbox: user namespaces through bubblewrap (`bwrap`).

Code in a box sees a read-only system, its own /tmp and /mnt/data, and nothing of the host's processes,
network, environment, home or devices. The limits are enforced as follows:

- files: /tmp, /mnt/data, /dev/shm and /run/kernel are tmpfs with a size; the watchdog counts their entries.
  Everything else is read-only, /mnt/skills too. This process reaches them through the box's root in /proc, as
  descriptors opened before any code of the model runs: no folder of the host is bound writable.
- memory: per process by rlimits; for the whole box by a control group if one can be created, otherwise by the
  watchdog, which also counts memory of the kernel, and ends boxes when the machine itself runs short.
- processes: by a control group; for an unprivileged user by RLIMIT_NPROC; for root without control groups by
  the box's highest process number (Linux 6.14); and always by the watchdog.
- time: RLIMIT_CPU per process, the watchdog for the whole box; the session limits the time of a call.

If root starts it, uid 1000 in the box is the host's uid 0 without any capability: it owns what root owns. So
/proc is mounted read-only (/proc/sys would be writable), and of root's files only the interpreter and /usr
are bound.
"""

import asyncio
import json
import logging
import os
import platform
import shutil
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from tools import child
from tools.python.sandboxes import box_view, launch, seccomp
from tools.python.sandboxes.bounds.cgroups import Groups, make_groups, remove_stale
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bounds.usage import bound_processes
from tools.python.sandboxes.box import RunningBox
from tools.python.sandboxes.folder import Folder
from tools.python.sandboxes.interpreter import Interpreter, examine
from tools.python.sandboxes.launch import KernelConnection, SandboxError, Spawned
from tools.python.sandboxes.sandbox import Sandbox
from tools.skills import MOUNT
from tools.tool import ToolUnavailable

_log = logging.getLogger(__name__)
_INSTALL = (
    "The python tool needs bubblewrap for its sandbox: `apt-get install bubblewrap` (Debian, Ubuntu), "
    "`dnf install bubblewrap` (Fedora), `apk add bubblewrap` (Alpine). Or choose --python docker or off."
)
_WEAKER = (
    "The python tool cannot limit the memory of its boxes by control groups here. Its watchdog does, but up "
    "to a tenth of a second late, and it ends boxes when the machine runs short of memory. For firm limits, "
    "start the server as root, or with `systemd-run --user --scope`."
)
_NAMESPACES = "allow user namespaces: `sysctl -w "
_APPARMOR = f"{_NAMESPACES}kernel.apparmor_restrict_unprivileged_userns=0`, "
_APPARMOR += "or give bwrap an AppArmor profile with `userns`"
_ADVICE = (  # bwrap's message → the remedy
    ("No permissions to creat", f"{_NAMESPACES}kernel.unprivileged_userns_clone=1`"),
    ("No space left on device", f"{_NAMESPACES}user.max_user_namespaces=10000`"),
    ("uid map: Permission denied", _APPARMOR),
    ("RTM_NEWADDR", _APPARMOR),
    (
        "Can't mount proc",
        "start the container with `--security-opt systempaths=unconfined --security-opt seccomp=unconfined`",
    ),
    ("Operation not permitted", "in a container, start that with `--security-opt seccomp=unconfined`"),
)
_NEEDED_OPTIONS = ("--size", "--perms", "--info-fd", "--seccomp")


class Bubblewrap(Sandbox):
    isolated = True

    def __init__(self, limits: SandboxLimits, *, interpreter: str) -> None:
        super().__init__(limits)
        self._wanted = interpreter
        self._interpreter: Interpreter | None = None
        self._command = ""
        self._options = ""
        self._grouped = True  # until control groups prove to be out of reach

    async def _probe(self) -> None:
        """Starts and ends one real box, because no list of settings shows as reliably whether that works."""
        command = shutil.which("bwrap")
        if command is None:
            raise ToolUnavailable(_INSTALL)
        if not seccomp.supported(platform.machine()):
            unknown = f"The bubblewrap sandbox does not know {platform.machine()} machines"
            raise ToolUnavailable(f"{unknown}; choose --python docker.")
        self._command, (_, self._options) = command, await child.run(command, "--help")
        missing = [option for option in _NEEDED_OPTIONS if option not in self._options]
        if missing:
            lacks = f"{command} lacks {', '.join(missing)}"
            raise ToolUnavailable(f"The python tool needs bubblewrap 0.7 or later; {lacks}.")
        self._interpreter = await examine(self._wanted)
        remove_stale()
        memory_limited = await self._starts_in_groups()
        if not self._grouped:
            try:
                await self._start_and_end()
            except SandboxError as error:
                raise ToolUnavailable(refusal(str(error))) from error
        if not memory_limited:
            _log.warning(_WEAKER)

    async def _starts_in_groups(self) -> bool:
        """Decides whether boxes get groups, which not every user may enter; whether these limit memory."""
        groups = make_groups(self._limits)
        self._grouped, limit_memory = bool(groups.folders), groups.limit_memory
        await groups.remove()
        if self._grouped:
            try:
                await self._start_and_end()
            except SandboxError:
                self._grouped = False
        return self._grouped and limit_memory

    async def _start(
        self, connection: KernelConnection, data: Folder | None, skills: Path | None
    ) -> RunningBox:
        assert self._interpreter is not None
        groups = make_groups(self._limits) if self._grouped else Groups(())
        # Not cancelled half-way: if bwrap is killed before its child is set up, the child stays.
        spawning = asyncio.create_task(self._spawn(self._interpreter, connection, groups, skills))
        try:
            spawned, root = await asyncio.shield(spawning)
            await spawned.ready()
            if not groups.folders:
                await bound_processes(root, self._limits.processes)
            try:
                box = RunningBox(spawned, root, groups, self._limits, self._watchdog)
            except OSError as error:
                what = f"the box cannot be reached through /proc/{root}"
                raise SandboxError(f"{what}: {error.strerror}") from error
            if data is not None:
                await box.take_over(data)
            return box
        except BaseException:
            await self._end(_abandon(spawning, groups))
            raise

    async def _spawn(
        self, interpreter: Interpreter, connection: KernelConnection, groups: Groups, skills: Path | None
    ) -> tuple[Spawned, int]:
        """Starts bwrap. Also returns the pid, on the host, of the first process in the box."""
        send = launch.first_line(
            connection, launch.SOCKET_FOLDER, box_view.HOME, self._limits, count_processes=os.geteuid() != 0
        )
        info, report = os.pipe()
        try:
            with ExitStack() as open_files:
                open_files.callback(os.close, report)
                argv, descriptors = self._command_line(interpreter, report, open_files, skills)
                # /proc/1/environ in the box shows bwrap's own environment, so it gets an empty one; a shell
                # adds the current folder to it.
                spawned = await launch.spawn(
                    groups.entering(argv), send=send, env={}, cwd="/", pass_fds=descriptors
                )
            reported, _ = await launch.collect(info)
        finally:
            os.close(info)
        return spawned, json.loads(reported)["child-pid"] if reported else 0

    def _command_line(
        self, interpreter: Interpreter, report: int, open_files: ExitStack, skills: Path | None
    ) -> tuple[list[str], tuple[int, ...]]:
        """The command. Its options go through a descriptor, so that process listings stay readable."""
        contents = {**box_view.contents(self._limits), box_view.LAUNCHER: launch.program()}
        files = {name: _memory_file(text.encode(), open_files) for name, text in contents.items()}
        rules = _memory_file(seccomp.program(platform.machine()), open_files)
        options = [
            *("--unshare-user", "--unshare-all", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"),
            *("--new-session", "--die-with-parent", "--clearenv", "--hostname", "sandbox"),
            *(["--disable-userns"] if "--disable-userns" in self._options else []),
            *(() if skills is None else ("--ro-bind", str(skills), MOUNT)),
            *box_view.arguments(self._limits, files, interpreter),
            *("--info-fd", str(report), "--seccomp", str(rules), "--chdir", launch.WORK_FOLDER),
        ]
        for name, value in launch.environment(str(interpreter.executable), box_view.HOME).items():
            options += ["--setenv", name, value]
        arguments = _memory_file("\0".join(options).encode() + b"\0", open_files)
        argv = [self._command, "--args", str(arguments), "--", str(interpreter.executable), "-I"]
        return [*argv, box_view.LAUNCHER], (report, rules, arguments, *files.values())


def refusal(words: str) -> str:
    """The operator's advice for what bwrap printed: what to install or to set."""
    advice = next((advice for pattern, advice in _ADVICE if pattern in words), None)
    last_line = words.splitlines()[-1] if words else "nothing"
    remedy = f": {advice}" if advice else "; choose --python docker or --python off"
    return f"The python tool cannot start a bubblewrap sandbox here{remedy}. (It printed: {last_line})"


def _memory_file(content: bytes, open_files: ExitStack) -> int:
    descriptor = os.memfd_create("box")
    open_files.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _abandon(spawning: asyncio.Task[tuple[Spawned, int]], groups: Groups) -> None:
    """Ends a box whose start failed or was cancelled."""
    with suppress(SandboxError):
        spawned, root = await spawning
        # After its end the pid may belong to another process.
        if root and spawned.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(root, signal.SIGKILL)
        await spawned.end()
    await groups.remove()
