"""Plans a patch: the contents of each file before and after, also as a diff. Reads files and writes none."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.apply_patch.match import patched
from tools.apply_patch.parse import FilePatch, PatchError
from tools.apply_patch.paths import content, relative

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class FileChange:
    """`before` is None for an added file, `after` for a deleted one."""

    path: str
    before: bytes | None
    after: bytes | None
    moved_to: str | None = None

    @property
    def summary(self) -> str:
        if self.moved_to is not None:
            return f"Moved {self.path} to {self.moved_to}"
        if self.before is None:
            return f"Added {self.path}"
        return f"Deleted {self.path}" if self.after is None else f"Updated {self.path}"


def plan(parts: Sequence[FilePatch], root: Path) -> list[FileChange]:
    named: set[str] = set()
    return [_change(part, root, named) for part in parts]


def _change(part: FilePatch, root: Path, named: set[str]) -> FileChange:
    path = _named_once(part.path, named)
    before = content(root, path)
    if part.kind == "Add":
        if before is not None:
            raise PatchError(f"{path} exists already: use '*** Update File: {path}'.")
        return FileChange(path, None, "".join(f"{line}\n" for line in part.lines).encode())
    if before is None:
        raise PatchError(f"There is no file {path} here, so it cannot be {part.kind.lower()}d.")
    if part.kind == "Delete":
        return FileChange(path, before, None)
    after = _updated(before, part, path)
    if part.move_to is None or relative(part.move_to) == path:
        return FileChange(path, before, after)
    target = _named_once(part.move_to, named)
    if content(root, target) is not None:
        raise PatchError(f"{path} cannot be moved to {target}, which exists already.")
    return FileChange(path, before, after, target)


def _named_once(path: str, named: set[str]) -> str:
    plain = relative(path)
    if plain in named:
        raise PatchError(f"The patch names {plain} twice: put all changes of a file under one header.")
    named.add(plain)
    return plain


def _updated(before: bytes, part: FilePatch, path: str) -> bytes:
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PatchError(f"{path} is not text in UTF-8, so it cannot be updated.") from error
    mark = _BOM if text.startswith(_BOM) else ""  # no line of a patch would match it
    return (mark + patched(text.removeprefix(mark), part.hunks, path)).encode("utf-8")


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
