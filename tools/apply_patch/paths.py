"""Which files a patch may touch: regular files under one folder, with plain names, reached without links."""

import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from tools.apply_patch.parse import PatchError


def relative(path: str) -> str:
    """The path in its plain form; raises `PatchError` if it could lead out of the folder."""
    plain = PurePosixPath(path)
    windows = PureWindowsPath(path)
    if not path or "\0" in path or not plain.parts:
        raise PatchError(f"{path!r} does not name a file.")
    if plain.is_absolute() or windows.drive or windows.root or path.startswith("~"):
        raise PatchError(f"{path!r}: only paths relative to the current folder can be patched.")
    if ".." in plain.parts or ".." in windows.parts:
        under = "only files under the current folder can be patched"
        raise PatchError(f"{path!r}: '..' is not allowed; {under}.")
    # Git runs files in there: writing them would run code.
    if any(part.lower() == ".git" for part in (*plain.parts, *windows.parts)):
        raise PatchError(f"{path!r}: the files of git itself cannot be patched.")
    return str(plain)


def checked(root: Path, path: str) -> os.stat_result | None:
    """The file's status, or None if it does not exist; refuses links and anything that is not a file."""
    at = root
    parts = PurePosixPath(path).parts
    for index, part in enumerate(parts):
        at = at / part
        try:
            status = at.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PatchError(f"{path!r} cannot be read: {error.strerror}.") from error
        if stat.S_ISLNK(status.st_mode):
            raise PatchError(f"{path!r}: {part!r} is a symbolic link, and links are not followed.")
        wants_folder = index < len(parts) - 1
        if wants_folder and not stat.S_ISDIR(status.st_mode):
            raise PatchError(f"{path!r}: {part!r} is not a folder.")
        if not wants_folder and not stat.S_ISREG(status.st_mode):
            raise PatchError(f"{path!r} is not a file that can be patched.")
    return status


def content(root: Path, path: str) -> bytes | None:
    """The bytes of the file, or None if it does not exist."""
    if checked(root, path) is None:
        return None
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise PatchError(f"{path!r} cannot be read: {error.strerror}.") from error
