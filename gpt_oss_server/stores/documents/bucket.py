"""The bytes of files in a bucket of S3, or of what speaks like it: an object for each piece of a file.

Keys and the endpoint come from the environment, as AWS's own tools take them. It does what `FileFolder` does,
and its package belongs to an extra.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from obstore.exceptions import BaseError
from obstore.store import from_url

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import SettingsError

_RETRIES, _SECONDS = 3, timedelta(seconds=30)


class FileBucket:
    """Its methods block their thread, and raise `StoreUnavailable`."""

    def __init__(self, place: str) -> None:
        """`place` is s3://BUCKET/PREFIX. Raises `SettingsError`, also if no such bucket answers."""
        try:
            self._objects = from_url(
                place,
                client_options={"allow_http": True},  # where the environment names an http:// endpoint
                retry_config={"max_retries": _RETRIES, "retry_timeout": _SECONDS},
            )
            self.names()
        except (BaseError, StoreUnavailable, ValueError) as error:
            raise SettingsError(f"--files {place} cannot be used. {_first_line(error)}") from error

    def append(self, name: str, start: int, piece: bytes) -> None:
        with _sentences():
            self._objects.put(_path(name, start), piece)

    def read(self, name: str, start: int, most: int) -> bytes:
        """The piece that begins there; no bytes where it is missing."""
        with _sentences():
            try:
                return bytes(self._objects.get(_path(name, start)).bytes())
            except FileNotFoundError:
                return b""

    def delete(self, name: str) -> None:
        with _sentences():
            for pieces in self._objects.list(f"{name}/"):
                self._objects.delete([piece["path"] for piece in pieces])

    def names(self) -> list[str]:
        with _sentences():
            return list(self._objects.list_with_delimiter()["common_prefixes"])


def _path(name: str, start: int) -> str:
    return f"{name}/{start:015}"


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"The bucket of --files does not answer: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """The sentence; what follows is for debugging."""
    return str(error).partition("\n")[0]
