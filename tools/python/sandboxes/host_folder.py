"""A box's sockets and files in a folder of the host, for sandboxes that cannot keep them in memory.

Creates a private temporary folder with `run` and `data` in it, and checks that `data` stays within its
limits. The watchdog does the counting, so a fast writer can exceed the limit a little before it is ended.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tools.python.sandboxes.bounds.limits import MIB, SandboxLimits
from tools.python.sandboxes.folder import Folder


class HostData(Folder):
    """A session's files on the host's disk. Closing it removes them."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor)
        self.path = path

    @classmethod
    def make(cls) -> HostData:
        path = Path(tempfile.mkdtemp(prefix="gpt-oss-python-data-"))
        opened = Folder.at(path)
        return cls(opened.descriptor, path)

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
            return f"it had more than {limits.data_files} files"
        if size > limits.data_size:
            return f"its files were larger than {limits.data_size // MIB} MiB"
        return None


def host_data(data: Folder | None) -> HostData:
    """The files that an earlier box left, or a new folder."""
    return data if isinstance(data, HostData) else HostData.make()


def make_socket_folder() -> Path:
    """A folder for sockets, with a short name, because a socket's path must be below 108 bytes."""
    return Path(tempfile.mkdtemp(prefix="gpt-oss-python-run-"))


def remove_socket_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
