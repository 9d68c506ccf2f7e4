"""One running kernel process with everything that it started.

A `RunningBox` takes the host's pid of its first process before any code of the model has run, and holds open
descriptors: code in the box cannot substitute another file, and the files outlive it.
"""

import asyncio
import logging
import os
import signal
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from pathlib import Path

from tools.python.sandboxes.bounds.cgroups import Groups
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bounds.watchdog import Watchdog, Watched
from tools.python.sandboxes.folder import Folder, bytes_in
from tools.python.sandboxes.launch import SOCKET_FOLDER, WORK_FOLDER, Spawned

_log = logging.getLogger(__name__)


class Box(ABC):
    """A kernel process that a watchdog watches.

    `sockets` is the folder of its sockets, as this process reaches it. `data` is its /mnt/data, which
    outlives the box: the box's owner closes it or hands it to the next box.
    """

    def __init__(
        self, spawned: Spawned, sockets: Path, data: Folder, watched: Watched, watchdog: Watchdog
    ) -> None:
        self._spawned = spawned
        self.sockets = sockets
        self.data = data
        self._watched = watched
        self._watchdog = watchdog
        watchdog.add(watched)

    @property
    def held(self) -> int:
        """The bytes of memory that it holds, with its files if they are in memory."""
        return self._watched.held

    @property
    def verdict(self) -> str | None:
        """Why a limit ended the box, in words; None if none did."""
        return self._watched.verdict

    def use(self, running: bool) -> None:
        """Marks whether code is running now; an unused box is watched less often."""
        self._watched.running = running

    @abstractmethod
    def kill(self) -> None:
        """Kills every process in it immediately, without waiting."""

    def end(self, why: str) -> None:
        """The same, for a reason that becomes the verdict. It may wait for a check of the watchdog."""
        self._watched.end(why)

    @abstractmethod
    async def wait(self) -> None:
        """Returns when its main process has ended and its resources outside are released."""

    async def discard(self) -> None:
        """Ends it and drops its files."""
        self.kill()
        await self.wait()
        self.data.close()


class RunningBox(Box):
    """A box with a root and a process namespace of its own. Descriptors keep its files after its end."""

    def __init__(
        self, spawned: Spawned, root: int, groups: Groups, limits: SandboxLimits, watchdog: Watchdog
    ) -> None:
        self._groups = groups
        self._limits = limits
        self._handle = os.pidfd_open(root)
        with ExitStack() as opened:
            opened.callback(os.close, self._handle)
            view = f"/proc/{root}/root"
            self._folders: list[int] = []
            for path in (SOCKET_FOLDER, "/tmp", "/dev/shm"):
                folder = os.open(view + path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                opened.callback(os.close, folder)
                self._folders.append(folder)
            data = Folder.at(view + WORK_FOLDER)
            opened.pop_all()
        sockets = Path(f"/proc/self/fd/{self._folders[0]}")
        watched = Watched(root, limits, self.kill, self._over, self._file_bytes, spare=1)
        super().__init__(spawned, sockets, data, watched, watchdog)

    @property
    def held(self) -> int:
        """Its processes as of the watchdog's last check, its files as of now: they grow fast."""
        if self._handle < 0:
            return self._watched.held
        return self._watched.held_by_processes + self._file_bytes()

    @property
    def verdict(self) -> str | None:
        return self._watched.verdict or self._over_memory()

    def kill(self) -> None:
        """Kills the first process of the process namespace, which takes all others with it."""
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def wait(self) -> None:
        await self._spawned.process.wait()
        self._spawned.let_go()
        if self._handle < 0:
            return
        await _readable(self._handle)  # the namespace has no process left
        self._watchdog.remove(self._watched)
        verdict = self.verdict
        self._watched.verdict = verdict  # before the groups that know it are removed
        descriptors, self._handle = [*self._folders, self._handle], -1
        # The last descriptor of a folder frees its files, which takes long if there are many.
        await asyncio.to_thread(_close, descriptors)
        await self._groups.remove()

    def _over(self) -> str | None:
        """The exceeded limit. For lack of memory the kernel may kill one process while the code runs on."""
        too_many = any(room.f_files - room.f_ffree > self._limits.data_files for room in self._rooms())
        return self._over_memory() or (self._limits.over_files if too_many else None)

    def _over_memory(self) -> str | None:
        return self._limits.over_memory if self._groups.out_of_memory() else None

    def _file_bytes(self) -> int:
        return sum(map(bytes_in, self._rooms()))

    def _rooms(self) -> list[os.statvfs_result]:
        """The size of each folder in memory that the code can write to."""
        with suppress(OSError):  # closed during the watchdog's check: the box is ending
            return [os.fstatvfs(descriptor) for descriptor in (self.data.descriptor, *self._folders)]
        return []

    async def take_over(self, data: Folder) -> None:
        """Copies the files that an earlier box left, and closes them. If that fails, this box has ended."""
        try:
            lost = await asyncio.to_thread(data.copy_to, self.data, self._limits.data_size)
        except BaseException:
            await self.discard()
            raise
        if lost:
            _log.warning("%d files of a session could not be kept over a restart", len(lost))
        data.close()


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    """Waits for a process to end, which its pidfd signals."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
