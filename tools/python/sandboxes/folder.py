"""A folder that hostile code writes and this process reads, from which no path escapes.

Each step of a path is opened relative to the previous one, never following a link, and only regular files are
read, so that links, pipes, devices and races are harmless.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tools.tool import encodable

MAX_DEPTH = 32
MAX_LISTED = 10_000
MAX_NAME = 1024
FOLDER_NAME = "/mnt/data"

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1024 * 1024


class FileRefused(Exception):
    """A file cannot be read, written or deleted; the message states why."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a session. `path` is relative to /mnt/data, with slashes."""

    path: str
    size: int
    modified: float  # seconds since the epoch


class Folder:
    """An open folder. All methods block on the disk: call them in a thread."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Folder:
        """The folder at a path that the caller trusts."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def duplicate(self) -> Folder:
        """The same folder with a descriptor of its own, which stays valid when this one is closed."""
        return Folder(os.dup(self.descriptor))

    def files(self) -> list[FileInfo]:
        """The regular files in it, sorted by path, MAX_LISTED at most, and MAX_DEPTH deep at most."""
        regular = ((path, entry) for path, entry in self._walk() if stat.S_ISREG(entry.st_mode))
        files = (FileInfo(path, entry.st_size, entry.st_mtime) for path, entry in regular)
        return sorted(files, key=lambda info: info.path)

    def read(self, path: str, limit: int) -> bytes:
        """The bytes of one regular file of at most `limit` bytes."""
        steps = _steps(path)
        with _explained(path), self._opened(steps[:-1]) as parent:
            descriptor = os.open(steps[-1], _READ_FLAGS, dir_fd=parent)
            try:
                return _read_regular(descriptor, path, limit)
            finally:
                os.close(descriptor)

    def write(self, path: str, content: bytes) -> None:
        """Writes a file and creates folders on the way; replaces a file or link of that name."""
        steps = _steps(path)
        with _explained(path), self._opened(steps[:-1], create=True) as parent:
            draft = f".{secrets.token_hex(8)}.part"
            try:
                _write_new(parent, draft, content)
                os.replace(draft, steps[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except OSError:
                with suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=parent)
                raise

    def remove(self, path: str) -> None:
        """Deletes one regular file. Refuses links, and never touches their targets."""
        steps = _steps(path)
        with _explained(path), self._opened(steps[:-1]) as parent:
            info = os.stat(steps[-1], dir_fd=parent, follow_symlinks=False)
            _refuse_irregular(info, path)
            # What replaces the file now is deleted instead: unlink follows no link and deletes no folder.
            os.unlink(steps[-1], dir_fd=parent)

    def copy_to(self, other: Folder, limit: int) -> list[str]:
        """Copies its regular files to `other`; returns the paths that could not be copied."""
        lost: list[str] = []
        left = limit
        for info in self.files():
            try:
                content = self.read(info.path, left)
                other.write(info.path, content)
                left -= len(content)
            except FileRefused:
                lost.append(info.path)
        return lost

    @property
    def in_memory(self) -> int:
        """The bytes of memory that its files take, as a file system in memory of its own."""
        return bytes_in(os.fstatvfs(self.descriptor))

    def usage(self, max_files: int) -> tuple[int, int]:
        """The bytes on disk and the number of entries; stops counting soon after `max_files` entries."""
        size = count = 0
        for _, entry in self._walk():
            size += entry.st_blocks * 512
            count += 1
            if count > max_files:
                break
        return size, count

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below, with one open folder at a time, so that no tree is too wide or too deep."""
        pending: list[tuple[str, ...]] = [()]
        seen = 0
        while pending:
            steps = pending.pop()
            try:
                with self._opened(steps) as folder, os.scandir(folder) as entries:
                    for entry in entries:
                        seen += 1
                        if seen > MAX_LISTED:
                            return
                        info = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(info.st_mode) and len(steps) + 1 < MAX_DEPTH:
                            pending.append((*steps, entry.name))
                        path = "/".join((*steps, entry.name))
                        if _is_plain(path):
                            yield path, info
            except OSError as error:
                # Code in the box removes and replaces things during the walk.
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                    raise

    @contextmanager
    def _opened(self, steps: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        """Opens the folder at the end of `steps`, each step without following links."""
        current = os.dup(self.descriptor)
        try:
            for step in steps:
                if create:
                    _make_folder(current, step)
                below = os.open(step, _FOLDER_FLAGS, dir_fd=current)
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)


def bytes_in(room: os.statvfs_result) -> int:
    return (room.f_blocks - room.f_bfree) * room.f_frsize


def _steps(path: str) -> tuple[str, ...]:
    """The steps of a client's path, which may start with /mnt/data."""
    if len(path) > MAX_NAME or "\0" in path or not _is_plain(path):
        raise FileRefused("The file name is too long or not valid UTF-8.")
    inside = path.removeprefix(FOLDER_NAME) if path.startswith(FOLDER_NAME + "/") else path
    if inside.startswith("/") and inside is path:
        raise FileRefused(f"{path!r} is outside {FOLDER_NAME}.")
    steps = tuple(step for step in inside.split("/") if step not in ("", "."))
    if not steps or ".." in steps or len(steps) > MAX_DEPTH or any(len(step) > 255 for step in steps):
        raise FileRefused(f"{path!r} is not the name of a file below {FOLDER_NAME}.")
    return steps


def _is_plain(path: str) -> bool:
    """Whether JSON can represent the name: names that are not UTF-8 carry lone surrogates here."""
    return encodable(path) == path


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise FileRefused(f"There is no file {path!r} below {FOLDER_NAME}.") from None
    except OSError as error:
        reason = "a link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0).lower()
        raise FileRefused(f"{path!r} is refused: {reason}.") from error


def _refuse_irregular(info: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise FileRefused(f"{path!r} is refused: a link.")
    if not stat.S_ISREG(info.st_mode):
        raise FileRefused(f"{path!r} is refused: not a regular file.")


def _read_regular(descriptor: int, path: str, limit: int) -> bytes:
    _refuse_irregular(os.fstat(descriptor), path)
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(descriptor, _CHUNK):
        size += len(chunk)
        if size > limit:  # counted while reading, because the file may still grow
            raise FileRefused(f"{path!r} is refused: larger than {limit} bytes.")
        parts.append(chunk)
    return b"".join(parts)


def _write_new(parent: int, name: str, content: bytes) -> None:
    descriptor = os.open(name, _CREATE_FLAGS, 0o644, dir_fd=parent)
    try:
        if os.geteuid() == 0:  # so that code in the box can change it
            owner = os.fstat(parent)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _make_folder(parent: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return  # the following open accepts only folders
    if os.geteuid() == 0:
        owner = os.fstat(parent)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)
