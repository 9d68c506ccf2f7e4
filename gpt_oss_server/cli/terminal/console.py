"""The terminal: results to standard output, messages about them to standard error, colours, and errors."""

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"
_LEAST_WIDTH = 20  # columns in which words still make lines
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class CommandLineError(Exception):
    """The message is a sentence for the user; the exit code is 1."""


def out(text: str = "", *, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def err(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def err_in_place(text: str) -> None:
    """Replaces the line of a terminal that was written so before."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


def read_input(name: str) -> bytes:
    """The bytes of a file, or of standard input for `-`. Raises CommandLineError."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandLineError(f"Cannot read {name}: {error.strerror}.") from error


def hanging(lead: str, text: str, columns: int | None = None) -> str:
    """The text after `lead`, in a terminal in lines that end between words and begin below each other.

    `columns` is the width of the lead, if that has colours. What is not a terminal gets one line.
    """
    columns = len(lead) if columns is None else columns
    width = shutil.get_terminal_size().columns - columns
    if width < _LEAST_WIDTH or not sys.stdout.isatty():
        return lead + text
    # Three spaces, as before a remark, stay: a line that ends there loses them.
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lead + ("\n" + " " * columns).join(lines)


def give_up_output() -> None:
    """Redirects standard output, whose reader has left, so that Python does not fail on it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def uncounted(prompt: str) -> str:
    """The prompt with colours marked for readline, which would otherwise count them as columns."""
    return re.sub(r"(\x1b\[[0-9;]*m)", "\\001\\1\\002", prompt)


def colourful(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use colour: the terminal supports it and the user has not disabled it (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def styled(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and code and text else text


def introduction(name: str, description: str) -> str:
    """A model's name and what it is: tiny, a 16M-parameter demo model. SGLang keeps its capitals."""
    about = description.rstrip(".")
    if not about:
        return name
    return f"{name}, {about}" if about[1:2].isupper() else f"{name}, {about[0].lower()}{about[1:]}"


def harmless(text: str) -> str:
    """The text with control characters escaped. It may be a part of a longer text."""
    return _CONTROLS.sub(lambda sign: _escape(sign[0]), text)


def visible(text: str) -> str:
    """The text with everything escaped that would control a terminal or reverse its writing direction."""
    steering = ("Cc", "Cf", "Cs", "Zl", "Zp")
    shown = (sign in "\n\t" or unicodedata.category(sign) not in steering for sign in text)
    return "".join(sign if plain else _escape(sign) for sign, plain in zip(text, shown, strict=True))


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
