"""Hears what other servers announce in Postgres: one thread with a connection of its own.

It knows whether announcements arrive at all: the database may be down, or a pool in between may swallow them.
Those are lost, so nothing may depend on one but the time until the next look.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpt_oss_server.stores.postgres.connections import CHANNEL, connect

if TYPE_CHECKING:
    import psycopg

_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # before the next attempt to connect
_LOOK_SECONDS = 0.5  # between looks whether to end
_PROBE = "probe:"
_log = logging.getLogger(__name__)


class Listener:
    def __init__(self, conninfo: str, hear: Callable[[str], None]) -> None:
        """`hear` is called in the listener's thread."""
        self._conninfo = conninfo
        self._hear = hear
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="postgres-listener", daemon=True)
        self.hears = False  # whether announcements arrive
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _listen(self) -> None:
        import psycopg

        pause = _PAUSE
        while not self._closing.is_set():
            try:
                with connect(self._conninfo) as connection:
                    self._hear_from(connection)
            except psycopg.Error as error:
                _log.info("Announcements of other servers are not heard for now: %s", error)
            except Exception:  # a defect must not end the thread; requests only wait a little longer
                _log.exception("Announcements of other servers could not be read.")
            if self.hears:  # it was connected well: only attempts that fail in a row are further apart
                pause = _PAUSE
            self.hears = False
            self._closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _hear_from(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {CHANNEL}")
        probe = _PROBE + secrets.token_hex(8)
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, probe))
        while not self._closing.is_set():
            for note in connection.notifies(timeout=_LOOK_SECONDS):
                if note.payload == probe:
                    self.hears = True
                elif not note.payload.startswith(_PROBE):
                    self._hear(note.payload)
                if self._closing.is_set():
                    return
