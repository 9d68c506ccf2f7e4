"""Makes text from outside safe to show: cleans characters, wraps lines, and finds lines and markers. Pure.

A page's text holds 【 and 】 only in this project's markers, no invisible characters, and no break but \\n.
"""

import re
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tools.words import words_in

WIDTH: Final = 80  # characters per line, as on the pages in the model's training
# textwrap takes time quadratic in the length of a word, so longer lines are cut first.
_LONGEST_UNCUT: Final = 4_000

_LINE_BREAKS: Final = dict.fromkeys([*"\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"], "\n")
# Invisible characters: controls, zero-width, bidirectional overrides, and "tags", which can hide text.
_DROPPED: Final = dict.fromkeys(
    [
        *range(0x09), 0x0D, *range(0x0E, 0x1C), 0x1F, *range(0x7F, 0x85), *range(0x86, 0xA0),
        0x00AD, 0x200B, 0x2060, 0xFEFF,
        *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080),
    ]
)  # fmt: skip
# Halves of characters, left by services that cut texts by UTF-16: they cannot be encoded.
_HALVES: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_CLEAN: Final = str.maketrans({**_LINE_BREAKS, "【": "〖", "】": "〗"}) | _DROPPED | _HALVES

# Wrapping may have broken a marker over two lines.
_MARKER: Final = re.compile(r"【[0-9\n]+†([^†】]*)(?:†[^†】]*)?】")


def clean(text: str) -> str:
    """A page's text without invisible characters, and without lookalikes of this project's markers."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CLEAN)


_SNIPPET_LINES: Final = 8
_PASSAGE_WORDS: Final = 8


def best_lines(text: str, words: Sequence[str], most_chars: int) -> tuple[str, str]:
    """A snippet from the line on that has most of a query's words, and how that line begins."""
    wanted = set(words)
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    counts = [len(wanted.intersection(words_in(line))) for line in lines]
    best = counts.index(max(counts))
    snippet = one_line(" ".join(lines[best : best + _SNIPPET_LINES]), most_chars)
    return snippet, " ".join(lines[best].split()[:_PASSAGE_WORDS])


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
    """The lines (without markers) on which a match of `pattern` starts, each once.

    Ignores case and the amount of white space; a match may continue over the end of a wrapped line. Uses
    plain search instead of a regular expression, so that its time is bounded for any page and pattern.
    """
    wanted = " ".join(pattern.lower().split())
    text, starts = _searchable(lines)
    starting: list[int] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        line = bisect_right(starts, at) - 1
        starting.append(line)
        next_line = starts[line + 1] if line + 1 < len(starts) else len(text)
        at = text.find(wanted, max(at + 1, next_line))
    return starting


def _searchable(lines: Sequence[str]) -> tuple[str, list[int]]:
    """The lines as one text in lower case with single spaces, and the start of each line in it."""
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        starts.append(length)
        words = " ".join(line.lower().split())
        if words:
            # A line wrapped after a hyphen, or within a word that is longer than a line.
            broken = (line.endswith("-") or len(line) >= WIDTH) and following[:1].strip()
            parts.append(words if broken else f"{words} ")
            length += len(parts[-1])
    return "".join(parts), starts
