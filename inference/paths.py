"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path

from inference.engine import ModelNotFound


def path_of(name: str, what: str = "folder") -> Path:
    """Expands `~`. Raises ModelNotFound for an unknown `~user`."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ModelNotFound(f"{name} names no {what}: {error}") from error
