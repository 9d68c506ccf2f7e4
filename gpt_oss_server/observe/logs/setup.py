"""Sets up the log of a process on standard error: its level, its form, and which lines of requests it has."""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from gpt_oss_server.caller.record import ARRIVALS, ENDS
from gpt_oss_server.settings import Settings

_log = logging.getLogger("gpt_oss_server")
_OWN = ("gpt_oss_server", "inference", "tools")  # the loggers of this project


def set_up_logging(settings: Settings) -> None:
    level = settings.log_level.upper()
    as_json = settings.log_format == "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonForm() if as_json else TextForm())
    # Debug lines of libraries hold headers and frames, and so keys and prompts.
    logging.basicConfig(level="INFO" if level == "DEBUG" else level, handlers=[handler], force=True)
    for name in _OWN:
        logging.getLogger(name).setLevel(level)
    # uvicorn logs its own start and end at info; the greeting replaces them.
    logging.getLogger("uvicorn.error").setLevel("INFO" if level == "DEBUG" else "WARNING")
    if not settings.access_log:
        ENDS.setLevel("CRITICAL")
    shows_arrivals = settings.access_log and (as_json or level == "DEBUG")
    ARRIVALS.setLevel("INFO" if shows_arrivals else "CRITICAL")
    if as_json:
        _log_everything()


def _log_everything() -> None:
    """Exceptions that nothing caught and warnings become lines too."""
    logging.captureWarnings(True)

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _log.critical("The process ended with %s.", kind.__name__, exc_info=(kind, error, trace))

    def uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "unknown"
        _log.error("The thread %s ended with %s.", name, args.exc_type.__name__, exc_info=args.exc_value)

    sys.excepthook = uncaught
    threading.excepthook = uncaught_in_thread


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
