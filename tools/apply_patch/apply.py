"""Writes planned changes: all of them or none.

All new contents, and copies of the files that they replace, are on disk before the first file changes. After
that only renames are left, and each can be undone.
"""

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.apply_patch.parse import PatchError
from tools.apply_patch.paths import checked, content
from tools.apply_patch.plan import FileChange


def apply(changes: Sequence[FileChange], root: Path) -> str:
    """Applies the changes and returns a summary. Raises `PatchError` if nothing was changed."""
    for change in changes:  # again, because the user has spent time reading the plan
        if content(root, change.path) != change.before:
            raise PatchError(f"{change.path} has been changed by someone else. Nothing was changed.")
        if change.moved_to is not None and checked(root, change.moved_to) is not None:
            raise PatchError(f"{change.moved_to} has been created by someone else. Nothing was changed.")
    work = _Work()
    try:
        for change in changes:
            work.stage(change, root)
        work.commit()
    except BaseException as error:
        left = work.undo()
        if isinstance(error, OSError):
            failed, reason = "The patch could not be applied", error.strerror or error
            if left:
                failed = f"{failed} ({reason}), and could not be undone in {', '.join(left)}."
            else:
                failed = f"{failed}: {reason}. Nothing was changed."
            raise PatchError(failed) from error
        raise
    finally:
        work.clean()
    return ". ".join(change.summary for change in changes) + "."


class _Work:
    """The renames to do, the renames that undo them, and the temporary files to remove."""

    def __init__(self) -> None:
        self._todo: list[tuple[Path, Path, Path | None]] = []  # (from, to, copy of the replaced file)
        self._done: list[tuple[Path, Path]] = []  # the renames that undo the finished ones
        self._temporary: list[Path] = []
        self._folders: list[Path] = []

    def stage(self, change: FileChange, root: Path) -> None:
        source, target = root / change.path, root / (change.moved_to or change.path)
        existing = source if change.before is not None else None
        if change.after is not None:
            self._make_folders(target.parent)
            fresh = self._temporary_name(target)
            with fresh.open("xb") as file:
                file.write(change.after)
            if existing is not None:
                shutil.copymode(existing, fresh)
            backup = None
            if existing == target:
                backup = self._temporary_name(target)
                shutil.copy2(target, backup)
            self._todo.append((fresh, target, backup))
        if existing is not None and (change.after is None or existing != target):
            self._todo.append((existing, self._temporary_name(existing), None))

    def commit(self) -> None:
        for source, target, backup in self._todo:
            os.replace(source, target)
            self._done.append((backup, target) if backup is not None else (target, source))

    def undo(self) -> list[str]:
        """Undoes the finished renames and returns the names of the files where that failed."""
        left = []
        for source, target in reversed(self._done):
            try:
                os.replace(source, target)
            except OSError:
                left.append(f"{target.name} (kept as {source.name})")
                if source in self._temporary:
                    self._temporary.remove(source)  # the only copy
        self.clean()
        for folder in reversed(self._folders):
            try:
                folder.rmdir()
            except OSError:
                left.append(folder.name)
        return left

    def clean(self) -> None:
        for path in self._temporary:
            path.unlink(missing_ok=True)

    def _temporary_name(self, path: Path) -> Path:
        """A name in the same folder, because a rename between file systems would be a copy."""
        temporary = path.with_name(f".{secrets.token_hex(8)}.patch")
        self._temporary.append(temporary)
        return temporary

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir()
            self._folders.append(folder)
