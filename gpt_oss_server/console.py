"""The terminal: where the commands write, and whether colour is wanted there.

Results go to standard output, everything said about them to standard error, so that output can be piped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

DIM = "2"
BOLD = "1"


def out(text: str = "", *, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def err(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def colourful(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour: a terminal that can, and no wish against it (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def styled(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text
