"""The bytes of files in a folder, one file each, named by the id that the server gave it."""

import os
import re
from contextlib import suppress
from pathlib import Path

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import SettingsError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class FileFolder:
    """Its methods block their thread."""

    def __init__(self, folder: Path) -> None:
        """Creates the folder. Raises `SettingsError`."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SettingsError(f"--files {folder.parent} cannot be used: {error.strerror}.") from error

    def append(self, name: str, start: int, piece: bytes) -> None:
        """Raises `StoreUnavailable`."""
        try:
            with os.fdopen(os.open(self._path(name), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.seek(start)
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreUnavailable(f"A file cannot be written to --files: {error.strerror}.") from error

    def read(self, name: str, start: int, most: int) -> bytes:
        """Fewer bytes than wanted where the file is shorter or is missing."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(start)
                return file.read(most)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreUnavailable(f"A file of --files cannot be read: {error.strerror}.") from error

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._path(name).unlink()

    def names(self) -> list[str]:
        return [path.name for path in self._folder.iterdir()]

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no id of this server.")
        return self._folder / name
