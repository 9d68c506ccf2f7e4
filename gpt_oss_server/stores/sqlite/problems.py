"""What SQLite's errors mean for the user: sentences that name the file and say what to do.

Takes an exception of `sqlite3`. Returns the error for a client, or for the person who starts the server.
"""

from __future__ import annotations

import sqlite3

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import SettingsError

_WHY = {
    sqlite3.SQLITE_FULL: "its disk is full. Free some space, or lower --store-max-age",
    sqlite3.SQLITE_READONLY: "it cannot be written: the file or its folder is read-only. Change that",
    sqlite3.SQLITE_PERM: "its permissions forbid it. Change them",
    sqlite3.SQLITE_BUSY: "another process has locked it for too long. End that process",
    sqlite3.SQLITE_LOCKED: "another process has locked it for too long. End that process",
    sqlite3.SQLITE_CORRUPT: "it is damaged. Restore a backup, or name another file with --store sqlite:PATH",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database. Name another file with --store sqlite:PATH",
    sqlite3.SQLITE_IOERR: "its disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that its folder exists and may be written",
}


def _code(error: sqlite3.Error) -> int:
    """The primary code; errors of the module itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def sentence(place: object, error: sqlite3.Error) -> str:
    return f"The store {place} failed: {_WHY.get(_code(error), f'SQLite reports: {error}')}."


def unavailable(place: object, error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(sentence(place, error))


def unusable(place: object, error: sqlite3.Error | OSError) -> SettingsError:
    """For a file that cannot be opened when the server starts."""
    if isinstance(error, sqlite3.Error):
        return SettingsError(sentence(place, error))
    return SettingsError(f"The store {place} cannot be opened: {error.strerror or error}.")
