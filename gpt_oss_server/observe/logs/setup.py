"""Sets up the log of a process on standard error: its level, its form, and which lines of requests it has."""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType

from gpt_oss_server.caller.record import ARRIVALS, ENDS
from gpt_oss_server.observe.logs.forms import JsonForm, TextForm
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
