"""The two forms of a line of the log: text for people, JSON for programs. Records may have `fields`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# In the message already, or of no interest to a person who reads one line.
_NOT_SHOWN = frozenset({"method", "path", "status", "finish"})
_SHORTER = {
    "request_id": "id",
    "response_id": "response",
    "input_tokens": "input",
    "cached_tokens": "cached",
    "output_tokens": "output",
    "error_code": "code",
    "error_param": "param",
}


class TextForm(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        fields: dict[str, Any] = getattr(record, "fields", {})
        shown = {name: value for name, value in fields.items() if name not in _NOT_SHOWN}
        seconds = shown.pop("seconds", None)
        if seconds is not None:
            line += f" in {seconds:.2f} s"
        return " ".join([line, *(f"{_SHORTER.get(name, name)}={_word(shown[name])}" for name in shown)])


def _word(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text or not text else text


class JsonForm(logging.Formatter):
    """One object: time, level, logger, message, then the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (event := getattr(record, "event", None)) is not None:
            line["event"] = event
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, ensure_ascii=False, default=str)
