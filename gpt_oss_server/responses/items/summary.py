"""A summary of reasoning, made of the reasoning's own words while it streams.

In: pieces of the analysis, cut anywhere. Out: the events of summary parts, one part for each paragraph, and
in the end the parts. No second model tells what the first meant: `detailed` (and `auto`) is every paragraph,
`concise` the first sentence of each. It must not know of items, indices or the full text's events.
"""

from __future__ import annotations

import re
from typing import Any, Literal

Event = dict[str, Any]
SummaryKind = Literal["auto", "concise", "detailed"]

_WORDS = re.compile(r"\s+|\S+")
_LONGEST_SENTENCE = 240  # characters; what has no end by then is cut
_SENTENCE_ENDS = re.compile(r"""[.!?…]["'”’)\]*_`]*$""")  # where white space follows
_FULL_STOPS = re.compile(r"[。！？]")  # of scripts without spaces


class Summary:
    """Feed it every delta, then close."""

    def __init__(self, kind: SummaryKind) -> None:
        self.parts: list[Event] = []  # those that have ended
        self._is_concise = kind == "concise"
        self._gap = ""  # white space that is held back: it may part two paragraphs
        self._open: list[str] | None = None  # the texts of the part under way
        self._length = 0
        self._enough = False  # nothing more of this paragraph
        self._due = ""

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        for piece in _WORDS.findall(text):
            if piece.isspace():
                self._gap += piece
            else:
                self._word(piece, events)
        self._tell(events)
        return events

    def close(self) -> list[Event]:
        events: list[Event] = []
        self._end_part(events)
        return events

    def _word(self, word: str, events: list[Event]) -> None:
        gap, self._gap = self._gap, ""
        if gap.count("\n") > 1:
            self._end_part(events)
        if self._open is None:
            self._begin_part(events)
            gap = ""
        elif self._is_concise and gap and self._ends_here(gap):
            self._enough = True
        if not self._enough:
            self._say(self._shortened(gap + word) if self._is_concise else gap + word)

    def _ends_here(self, gap: str) -> bool:
        said = "".join(self._open or ())[-8:] + self._due
        return "\n" in gap or _SENTENCE_ENDS.search(said) is not None

    def _shortened(self, text: str) -> str:
        """As much of it as belongs to the first sentence."""
        stop = _FULL_STOPS.search(text)
        if stop is not None:
            text, self._enough = text[: stop.end()], True
        if self._length + len(text) > _LONGEST_SENTENCE:
            text, self._enough = text[: _LONGEST_SENTENCE - self._length].rstrip() + "…", True
        return text

    def _say(self, text: str) -> None:
        self._due += text
        self._length += len(text)

    def _begin_part(self, events: list[Event]) -> None:
        self._open, self._length, self._enough = [], 0, False
        events.append(self._event("part.added", part=_part("")))

    def _end_part(self, events: list[Event]) -> None:
        if self._open is None:
            return
        self._tell(events)
        part = _part("".join(self._open))
        events.append(self._event("text.done", text=part["text"]))
        events.append(self._event("part.done", part=part))
        self.parts.append(part)
        self._open = None

    def _tell(self, events: list[Event]) -> None:
        if self._due and self._open is not None:
            events.append(self._event("text.delta", delta=self._due))
            self._open.append(self._due)
            self._due = ""

    def _event(self, name: str, **what: Any) -> Event:
        return {"type": f"response.reasoning_summary_{name}", "summary_index": len(self.parts), **what}


def _part(text: str) -> Event:
    return {"type": "summary_text", "text": text}
