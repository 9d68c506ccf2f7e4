"""What goes wrong with a remote engine, as sentences.

InferenceError
├── EngineFailed
│   ├── Unreachable       no connection, or one that broke or fell silent
│   └── Refused           an answer with an error's status
└── EngineBusy
    └── RemoteBusy        429 or 503: later there may be room
"""

from collections.abc import Mapping
from typing import Any

from inference.engine import EngineBusy, EngineFailed, InferenceError

RETRY_AFTER = 5.0  # seconds, where the engine names none
_LONGEST = 500  # characters of an engine's own message
_BUSY = (429, 503)


class Unreachable(EngineFailed):
    pass


class Refused(EngineFailed):
    """`details` is the error object of the answer, or empty."""

    def __init__(self, url: str, status: int, details: Mapping[str, Any], message: str) -> None:
        super().__init__(f"The engine at {url} refused the request ({status}): {_short(message)}")
        self.status, self.details = status, details


class RemoteBusy(EngineBusy):
    def __init__(self, url: str, status: int, message: str, retry_after: float) -> None:
        words = f"The engine at {url} accepts no request now ({status}): {_short(message)}"
        super().__init__(None, retry_after, words)


def refusal(url: str, status: int, parsed: object, text: str, retry_after: str | None) -> InferenceError:
    """The error of an answer with an error's status. `parsed` is its JSON, if it is JSON."""
    stated = parsed.get("error", parsed) if isinstance(parsed, Mapping) else None
    details: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    message = details.get("message") if details else stated
    spoken = message if isinstance(message, str) and message else text.strip() or "without an explanation"
    if status in _BUSY:
        return RemoteBusy(url, status, spoken, _seconds(retry_after))
    return Refused(url, status, details, spoken)


def _seconds(header: str | None) -> float:
    """`retry-after` may also be a date, which a server of this kind does not send."""
    try:
        return max(0.0, float(header or ""))
    except ValueError:
        return RETRY_AFTER


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
