"""Markdown as the model reads it: unchanged, except that links outside fenced code are numbered as on other
pages.
"""

import re
from typing import Final

from tools.browser.pages.document import Document
from tools.browser.pages.links import Links
from tools.browser.pages.text import clean

_FENCE: Final = re.compile(r"\s{0,3}(```|~~~)")
_MOST_MARKS: Final = 6  # of a heading
_LINK: Final = re.compile(
    r"""(?<!!)\[([^\[\]\n]{1,300})\]\(\s*<?([^\s()<>]{1,2000})>?(?:\s+["'][^"'\n]{0,200}["'])?\s*\)"""
    r"|<(https?://[^\s<>]{1,2000})>"
)


def markdown_to_text(markdown: str, url: str) -> Document:
    links = Links(url)
    title, fenced = "", False
    lines: list[str] = []

    def marker(link: re.Match[str]) -> str:
        return links.marker(link[1] or link[3], link[2] or link[3])

    for line in clean(markdown).split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            title = title or _heading(line)
            line = _LINK.sub(marker, line)
        lines.append(line.rstrip())
    return Document(url, title, "\n".join(lines).strip("\n"), links.urls)


def _heading(line: str) -> str:
    """The text of a heading; empty if the line is none."""
    text = line.lstrip("#")
    is_heading = len(line) - _MOST_MARKS <= len(text) < len(line) and text[:1].isspace()
    return text.strip().rstrip("#").rstrip() if is_heading else ""
