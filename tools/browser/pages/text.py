"""Text from outside made safe to show: characters cleaned, lines wrapped, links and lines told apart.

Pure functions. What they keep true: a page's text never holds 【 or 】 except in markers that we wrote, nor a
character that a reader cannot see, nor a line break other than \\n.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

WIDTH: Final = 80  # characters of a line, as in the pages that the model was trained on
# textwrap takes time quadratic in the length of a word, so longer lines are cut beforehand.
_LONGEST_UNCUT: Final = 4_000

_LINE_BREAKS: Final = dict.fromkeys([*"\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"], "\n")
# Invisible ones: controls, zero-width, bidirectional overrides, and the "tags" block that can carry hidden
# text.
_DROPPED: Final = dict.fromkeys(
    [
        *range(0x09), 0x0D, *range(0x0E, 0x1C), 0x1F, *range(0x7F, 0x85), *range(0x86, 0xA0),
        0x00AD, 0x200B, 0x2060, 0xFEFF,
        *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080),
    ]
)  # fmt: skip
# Halves of a character, as services leave them that cut texts by UTF-16: nothing could encode them.
_HALVES: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_CLEAN: Final = str.maketrans({**_LINE_BREAKS, "【": "〖", "】": "〗"}) | _DROPPED | _HALVES

# Wrapping may have broken a marker over two lines.
_MARKER: Final = re.compile(r"【[0-9\n]+†([^†】]*)(?:†[^†】]*)?】")


def clean(text: str) -> str:
    """Text of a page without what could be taken for our own markers or could not be seen."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CLEAN)


def one_line(text: str, most: int = 200) -> str:
    """A title or URL for a line of its own, cut to `most` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def wrap(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= WIDTH:
            lines.append(line.rstrip())
            continue
        for start in range(0, len(line), _LONGEST_UNCUT):
            piece = line[start : start + _LONGEST_UNCUT]
            wrapped = textwrap.wrap(piece, WIDTH, replace_whitespace=False, drop_whitespace=False)
            lines += [part.rstrip() for part in wrapped]
    return lines


def without_markers(lines: Sequence[str]) -> list[str]:
    """The same number of lines, in which 【3†A title†example.com】 reads as `A title`."""

    def title(marker: re.Match[str]) -> str:
        return marker[1] + "\n" * (marker[0].count("\n") - marker[1].count("\n"))

    return _MARKER.sub(title, "\n".join(lines)).split("\n")


def find_lines(lines: Sequence[str], pattern: str) -> list[int]:
    """The lines, of lines without markers, on which a match of `pattern` begins, each once.

    Case does not matter, nor does the amount of white space, and a match may go on over a wrapped line's end.
    Plain search and no regular expression: its time is bounded whatever a page and a pattern contain.
    """
    wanted = " ".join(pattern.lower().split())
    text, starts = _searchable(lines)
    found: list[int] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        line = bisect_right(starts, at) - 1
        found.append(line)
        next_line = starts[line + 1] if line + 1 < len(starts) else len(text)
        at = text.find(wanted, max(at + 1, next_line))
    return found


def _searchable(lines: Sequence[str]) -> tuple[str, list[int]]:
    """The lines as one text in lower case with single spaces, and where in it each begins."""
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        starts.append(length)
        words = " ".join(line.lower().split())
        if words:
            # Wrapped after a hyphen, or within a word that is longer than a line.
            broken = (line.endswith("-") or len(line) >= WIDTH) and following[:1].strip()
            parts.append(words if broken else f"{words} ")
            length += len(parts[-1])
    return "".join(parts), starts
