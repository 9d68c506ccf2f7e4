"""A progress bar on stderr for slow work at start, if stderr is a terminal or the caller wants it."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

WIDTH = 30
_LEAST = 5  # a shorter bar shows nothing
_COLUMNS = 80  # where the width is not known
_FIGURES = len(" [] 100% 1000.0 s")
SECONDS_BETWEEN_DRAWINGS = 0.1


class ProgressBar:
    """`with ProgressBar("Loading", 24) as bar: … bar.advance()`."""

    def __init__(
        self, title: str, total: int, *, show: bool | None = None, stream: TextIO | None = None
    ) -> None:
        self._title = title
        self._total = max(total, 1)
        self._stream = sys.stderr if stream is None else stream
        self._show = self._stream.isatty() if show is None else show
        self._done = 0
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> ProgressBar:
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw(ending="\n")

    def advance(self, amount: int = 1) -> None:
        self._done = min(self._done + amount, self._total)
        if time.monotonic() - self._drawn >= SECONDS_BETWEEN_DRAWINGS:
            self._draw()

    def _draw(self, ending: str = "") -> None:
        if not self._show:
            return
        self._drawn = time.monotonic()
        share = self._done / self._total
        width = min(WIDTH, self._columns() - len(self._title) - _FIGURES)
        bar = f" [{'#' * round(width * share):<{width}}]" if width >= _LEAST else ""
        seconds = self._drawn - self._began
        self._stream.write(f"\r{self._title}{bar} {share:4.0%} {seconds:.1f} s{ending}")
        self._stream.flush()

    def _columns(self) -> int:
        """A line that is longer than the terminal is wide would be drawn again on every line."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except OSError:  # no terminal; a StringIO raises a kind of it
            return _COLUMNS
