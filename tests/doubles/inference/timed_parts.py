"""A measurement in parts, for a card that is at hand for minutes.

Each part prints its own figures, and its own error if it fails; one that would begin too late is skipped.
"""

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

_began = time.monotonic()


def say(text: str) -> None:
    sys.stdout.write(f"[{time.monotonic() - _began:5.0f} s] {text}\n")
    sys.stdout.flush()


class TimedParts:
    def __init__(self, seconds: float) -> None:
        """`seconds`, from the import of this module: no part begins later."""
        self.found: dict[str, Any] = {}
        self._seconds = seconds

    def part(self, name: str, run: Callable[[], Any]) -> None:
        if time.monotonic() - _began > self._seconds:
            say(f"{name}: skipped, no time left")
            return
        try:
            self.found[name] = run()
        except Exception as error:
            last = traceback.format_exc().strip().splitlines()[-7:]
            say(f"{name}: FAILED: {type(error).__name__}: {str(error)[:300]}\n" + "\n".join(last))
            self.found[name] = f"failed: {error}"
