"""The terminal: where the commands write, and whether colour is wanted there.

Results go to standard output, everything said about them to standard error, so that output can be piped.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import TextIO

DIM = "2"
BOLD = "1"
RED = "31"
GREEN = "32"
CYAN = "36"
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def out(text: str = "", *, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def err(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def give_up_output() -> None:
    """Its reader has left: nothing more goes there, nor does Python try once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def uncounted(prompt: str) -> str:
    """The prompt for readline, which counts colours as columns where it is not told."""
    return re.sub(r"(\x1b\[[0-9;]*m)", "\\001\\1\\002", prompt)


def colourful(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour: a terminal that can, and no wish against it (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def styled(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text


def harmless(text: str) -> str:
    """The text with what would steer a terminal shown as escapes; it may be a part of one."""
    return _CONTROLS.sub(lambda found: _escape(found[0]), text)


def visible(text: str) -> str:
    """The text with what would steer a terminal, or turn its writing round, shown as escapes."""
    return "".join(_escape(sign) if _steers(sign) else sign for sign in text)


def _steers(sign: str) -> bool:
    return sign not in "\n\t" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
