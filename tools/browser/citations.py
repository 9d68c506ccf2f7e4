"""Citations in the answer: 【4†L12-L15】 becomes ` ([title](url))` while the text streams.

A marker is 【, a cursor, †, a locator (`L12`, `L12-L15`, `source`, a title), perhaps † and more, and 】. Text
is held back only while all of it, from a 【 on, can still become a marker. One with an unknown cursor stays
unchanged. In a JSON answer a marker is inside a string, and so is its link.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Resolve = Callable[[int, int | None], tuple[str, str] | None]
"""(cursor, first cited line) → (url, title), or None if it cannot be cited."""

# Limits on a marker, and so on the text held back: cursors are small and locators short.
_LOCATOR: Final = r"[^【】†\n]{0,80}"
_MARKER: Final = re.compile(rf"【([0-9]{{1,6}})†({_LOCATOR})(?:†{_LOCATOR})?】")
_UNFINISHED: Final = re.compile(rf"【(?:[0-9]{{1,6}}(?:†{_LOCATOR}(?:†{_LOCATOR})?)?)?")
_LINKED: Final = re.compile(r"(?!file-search:)")  # a file of a vector store has no address
_FIRST_LINE: Final = re.compile(r"\s*L([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Citation:
    """A replaced marker. `text` stands in the answer at [start_index, end_index)."""

    text: str
    url: str
    title: str
    start_index: int
    end_index: int
    marker: str


Piece = Text | Citation


class CitationRewriter:
    """Rewrites one output text. Feed it every delta, then close it: the pieces are the final text."""

    def __init__(self, resolve: Resolve, *, in_json: bool = False) -> None:
        self._resolve = resolve
        self._in_json = in_json
        self._held = ""
        self._length = 0  # characters returned so far

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        return self._take(at_end=False)

    def close(self) -> list[Piece]:
        return self._take(at_end=True)

    def _take(self, *, at_end: bool) -> list[Piece]:
        pieces: list[Piece] = []
        plain: list[str] = []  # text that is not a piece yet
        text, position = self._held, 0
        while (start := text.find("【", position)) >= 0:
            plain.append(text[position:start])
            marker = _MARKER.match(text, start)
            if marker is None:
                if not at_end and _UNFINISHED.fullmatch(text, start):
                    position = start
                    break
                plain.append("【")
                position = start + 1
                continue
            position = marker.end()
            line = _FIRST_LINE.match(marker[2])
            source = self._resolve(int(marker[1]), int(line[1]) if line else None)
            if source is None:
                plain.append(marker.group())
            else:
                self._flush(plain, pieces)
                pieces.append(self._cite(marker.group(), *source))
        else:
            plain.append(text[position:])
            position = len(text)
        self._held = text[position:]
        self._flush(plain, pieces)
        return pieces

    def _cite(self, marker: str, url: str, title: str) -> Citation:
        named = (
            f"[{_link_text(title or url)}]({_link_target(url)})" if _LINKED.match(url) else _link_text(title)
        )
        text = f" ({named})"
        if self._in_json:
            text = json.dumps(text, ensure_ascii=False)[1:-1]
        start = self._length
        self._length += len(text)
        return Citation(text, url, title or url, start, self._length, marker)

    def _flush(self, plain: list[str], pieces: list[Piece]) -> None:
        text = "".join(plain)
        plain.clear()
        if text:
            self._length += len(text)
            pieces.append(Text(text))


def _link_text(title: str) -> str:
    """The title inside [ ] of Markdown, on one line, with the special characters escaped."""
    return re.sub(r"([\\\[\]|`<])", r"\\\1", " ".join(title.split()))


def _link_target(url: str) -> str:
    """The URL inside ( ) of Markdown, without the characters that end it or a table cell."""
    return re.sub(r"[\s()<>|]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), url)
