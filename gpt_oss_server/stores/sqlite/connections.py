"""Connections to SQLite, transactions on them, and what SQLite's errors mean for the user.

Connections commit only where a statement commits.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.sql.database import Row, Value, speller
from gpt_oss_server.stores.sql.migrations import migrate
from gpt_oss_server.stores.sqlite.texts import SqliteTexts

_OLDEST = (3, 35, 0)  # the first with RETURNING
_BUSY_SECONDS = 5.0
_spelt = speller(
    {
        "{now}": "seconds_now()",
        "{serial}": "INTEGER PRIMARY KEY AUTOINCREMENT",  # never uses a number again
        "{bytes}": "BLOB",
        "{skip_locked}": "",
        "{real}": "REAL",
    }
)

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


class SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.texts = SqliteTexts(connection)

    def rows(self, sql: str, *values: Value) -> list[Row]:
        return self._connection.execute(_spelt(sql), values).fetchall()

    def run(self, sql: str, *values: Value) -> int:
        return self._connection.execute(_spelt(sql), values).rowcount

    def run_each(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        self._connection.executemany(_spelt(sql), rows)


def create(path: Path) -> sqlite3.Connection:
    """A connection for writing; creates the file for its owner only, with the newest tables."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise SettingsError(
            f"--store sqlite needs SQLite 3.35; this Python has {sqlite3.sqlite_version}. Use a newer one."
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # SQLite gives its other files the same permissions
        connection = connect(path)
    except (OSError, sqlite3.Error) as error:
        raise unusable(path, error) from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute("BEGIN IMMEDIATE")
        migrate(SqliteTransaction(connection), str(path))
        connection.execute("COMMIT")
    except (sqlite3.Error, SettingsError) as error:
        connection.close()
        if isinstance(error, SettingsError):
            raise
        raise unusable(path, error) from error
    return connection


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,  # transactions begin and end by statements
        check_same_thread=False,
        cached_statements=256,
    )
    add_clock(connection, time.time)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def add_clock(connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
    """SQLite's own clock shows milliseconds, too few to order what is stored in quick succession."""
    connection.create_function("seconds_now", 0, clock)


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # the error that led here is the one to report
            connection.execute("ROLLBACK")


# --- errors ----------------------------------------------------------------------------------------


def _sentence(place: object, error: sqlite3.Error) -> str:
    """By the primary code; errors of the module itself have none."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return f"The store {place} failed: {_WHY.get(code, f'SQLite reports: {error}')}."


def unavailable(place: object, error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(_sentence(place, error))


def unusable(place: object, error: sqlite3.Error | OSError) -> SettingsError:
    """For a file that cannot be opened when the server starts."""
    if isinstance(error, sqlite3.Error):
        return SettingsError(_sentence(place, error))
    return SettingsError(f"The store {place} cannot be opened: {error.strerror or error}.")
