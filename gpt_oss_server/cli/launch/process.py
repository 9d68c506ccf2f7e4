"""A program that has the terminal while it runs: keys, signals and the exit code are its own."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType

_KEYS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)  # a terminal sends them to the program too
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """Ends this process by an exception, so that what it started ends too."""
    for number in _ENDS:
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def run_in_terminal(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the program and returns its exit code, as a shell writes it. Raises OSError if it cannot start."""
    process = 0

    def pass_on(number: int, frame: FrameType | None) -> None:
        if not process:
            _exit(number, frame)
        with suppress(ProcessLookupError):
            os.kill(process, number)

    # Functions, which leave it to the program: that would inherit a signal that is ignored.
    for number in _KEYS:
        signal.signal(number, lambda *_: None)
    for number in _ENDS:
        signal.signal(number, pass_on)
    try:
        process = os.posix_spawnp(words[0], list(words), environment)
        while True:
            _, status = os.waitpid(process, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            os.kill(os.getpid(), signal.SIGSTOP)  # Ctrl-Z: the shell has the terminal until `fg`
            os.kill(process, signal.SIGCONT)
    finally:
        exit_on_signals()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes late must not change the exit code
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
