"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path


class UnknownHome(ValueError):
    """A path begins with the home of a user that does not exist. The message names the path."""


def path_of(name: str, what: str = "folder") -> Path:
    """Expands `~`. Raises UnknownHome for an unknown `~user`."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UnknownHome(f"{name} names no {what}: {error}") from error
