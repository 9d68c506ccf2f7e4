"""A measurement in parts, for a card that is at hand for minutes.

Each part prints its own figures, and its own error if it fails; one that would begin too late is skipped.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
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

    def left(self) -> float:
        return self._seconds - (time.monotonic() - _began)

    def part(self, name: str, run: Callable[[], Any]) -> None:
        if self.left() < 0:
            say(f"{name}: skipped, no time left")
            return
        try:
            self.found[name] = run()
        except Exception as error:
            last = traceback.format_exc().strip().splitlines()[-7:]
            say(f"{name}: FAILED: {type(error).__name__}: {str(error)[:300]}\n" + "\n".join(last))
            self.found[name] = f"failed: {error}"

    def parts(self, runs: Mapping[str, Callable[[], Any]], target: str | None) -> bool:
        """Runs them, writes all figures to a file, and returns whether one failed."""
        for name, run in runs.items():
            self.part(name, run)
        say("done")
        if target:
            Path(target).write_text(json.dumps(self.found, indent=1, default=str), encoding="utf-8")
        return any(str(part).startswith("failed: ") for part in self.found.values())


def parser_of(about: str | None, seconds: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"no part begins later ({seconds:g})")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    return parser
