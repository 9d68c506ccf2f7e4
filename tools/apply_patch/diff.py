"""Planned changes as a unified diff, for people to read."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from tools.apply_patch.plan import FileChange


def unified_diff(changes: Sequence[FileChange]) -> Iterator[str]:
    """The lines of the diff, without line ends."""
    for change in changes:
        if change.moved_to is not None:
            yield f"rename from {change.path}"
            yield f"rename to {change.moved_to}"
        yield from _of_file(change)


def _of_file(change: FileChange) -> Iterator[str]:
    old, new = _lines(change.before), _lines(change.after)
    before = "/dev/null" if change.before is None else f"a/{change.path}"
    after = "/dev/null" if change.after is None else f"b/{change.moved_to or change.path}"
    if old == new and change.moved_to is None:  # an empty file that comes or goes, or one that stays
        yield from (f"--- {before}", f"+++ {after}")
    for line in difflib.unified_diff(old, new, before, after):
        yield line.rstrip("\r\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", errors="replace")
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
