"""Paths and repos as users write them, and the usual permissions of files."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_PAGE = re.compile(r"(?:https?://)?(?:huggingface\.co|hf\.co)/([^/]+/[^/?#]+).*", re.IGNORECASE)


class UnknownHome(ValueError):
    """A path begins with the home of a user that does not exist. The message names the path."""


def expanded_path(name: str, what: str = "folder", failure: Callable[[str], Exception] = UnknownHome) -> Path:
    """Expands `~`. Raises a failure for an unknown `~user`."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise failure(f"{name} names no {what}: {error}") from error


def existing(name: str) -> Path | None:
    """The file or the folder of this name; None also for a name that nothing can have."""
    with suppress(OSError, ValueError):
        path = expanded_path(name)
        return path if path.exists() else None
    return None


def from_hub(word: str) -> str | None:
    """The repo of a page on Hugging Face."""
    page = _HUB_PAGE.fullmatch(word)
    return page[1] if page else None


@contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A file for its user alone, which takes the path once it is whole."""
    descriptor, new = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(descriptor)
    try:
        with open(new, "wb") as file:
            yield file
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def open_to_others(*paths: Path) -> None:
    """Gives temporary files and folders the usual permissions: another user may have to read them."""
    mask = os.umask(0)  # the only way to read it
    os.umask(mask)
    for path in paths:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
