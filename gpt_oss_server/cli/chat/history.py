"""The messages of earlier chats, for the arrow keys: a file for its owner only, a JSON text a line."""

from __future__ import annotations

import json
import os
from pathlib import Path

_MOST = 1000  # messages that are kept
_LONGEST = 20_000  # characters; longer messages are not worth recalling


class History:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> None:
        """Gives the messages to readline. A file that cannot be read counts as empty."""
        import readline

        for message in self._messages():
            readline.add_history(message)

    def add(self, message: str) -> None:
        """Recalls the message from now on. A folder that cannot be written costs only the memory."""
        try:
            import readline
        except ImportError:
            return
        readline.add_history(message)
        if len(message) > _LONGEST:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(file, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(message) + "\n")
        except OSError:
            return

    def _messages(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        if len(lines) > 2 * _MOST:
            lines = lines[-_MOST:]
            self._rewrite(lines)
        return [message for line in lines[-_MOST:] if (message := _parsed(line))]

    def _rewrite(self, lines: list[str]) -> None:
        """Through another file, so that a chat that is killed here loses nothing."""
        shorter = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            file = os.open(shorter, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as written:
                written.writelines(line + "\n" for line in lines)
            shorter.replace(self._path)
        except OSError:
            shorter.unlink(missing_ok=True)


def _parsed(line: str) -> str | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, str) else None
