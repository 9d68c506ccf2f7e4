"""A full-text index of a folder's documents in SQLite's FTS5, for one thread that the caller provides."""

import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.browser.backends.local_files import KINDS, read_file
from tools.browser.pages.text import clean
from tools.words import words_in

MAX_FILES: Final = 50_000
_SCHEMA: Final = """
CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize = "porter unicode61 remove_diacritics 2");
"""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    path: str
    stamp: str
    title: str
    text: str
    row: int


class FolderIndex:
    """Opened and used on one thread. `stop` may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stopped = threading.Event()
        self._files: dict[str, IndexedFile] = {}
        self._rows: dict[int, IndexedFile] = {}
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.execute(_SCHEMA)

    def stop(self) -> None:
        """Makes a running refresh end after its current file."""
        self._stopped.set()

    def close(self) -> None:
        self._db.close()

    def refresh(self) -> None:
        """Updates the index: reads new and changed files, and drops deleted ones."""
        present = dict(list_files(self._folder))
        for path in self._files.keys() - present.keys():
            self._drop(path)
        for path, stamp in sorted(present.items()):
            if self._stopped.is_set():
                return
            if not self.has(path) or self._files[path].stamp != stamp:
                self._drop(path)
                self._add(path, stamp, *read_file(self._folder, path))

    def search(self, words: Sequence[str], limit: int) -> Sequence[IndexedFile]:
        """The best documents with any of the words, ranked by the words' rarity and frequency."""
        # In FTS5's query language, quoted so that no word is an operator.
        expression = " OR ".join(f'"{word}"' for word in words)
        rows = self._db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words, 5.0, 1.0), rowid LIMIT ?",
            (expression, limit),
        )
        return [self._rows[row] for (row,) in rows]

    def has(self, path: str) -> bool:
        return path in self._files

    def _add(self, path: str, stamp: str, title: str, text: str) -> None:
        named = f"{title} {re.sub(r'[/._-]', ' ', clean(path))}"
        insert = "INSERT INTO words (title, text) VALUES (?, ?)"
        added = self._db.execute(insert, (" ".join(words_in(named)), " ".join(words_in(text))))
        row = added.lastrowid or 0
        self._files[path] = self._rows[row] = IndexedFile(path, stamp, title, text, row)

    def _drop(self, path: str) -> None:
        if (file := self._files.pop(path, None)) is not None:
            del self._rows[file.row]
            self._db.execute("DELETE FROM words WHERE rowid = ?", (file.row,))


def list_files(folder: Path) -> Iterator[tuple[str, str]]:
    """(relative path, stamp) of each document that is not hidden and does not lead out of the folder."""
    root = folder.resolve()
    count = 0
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or path.suffix.lower() not in KINDS or not _within(root, path):
                continue
            count += 1
            if count > MAX_FILES:
                return
            yield path.relative_to(root).as_posix(), _stamp(path)


def _within(root: Path, path: Path) -> bool:
    """Whether this is a regular file whose real path, links followed, is in the folder."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link to itself
        return False


def _stamp(path: Path) -> str:
    """A value that changes whenever the file does. Reading detects a file that has vanished."""
    try:
        stat = path.stat()
    except OSError:
        return "gone"
    return f"{stat.st_mtime_ns}:{stat.st_size}:{stat.st_ino}"
