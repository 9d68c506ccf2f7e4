"""A summary of reasoning, extracted from the reasoning itself while it streams.

Takes pieces of the analysis, cut anywhere. Returns the events of summary parts, one part per paragraph, and
finally the parts. No second model interprets the first: `detailed` (and `auto`) keeps every paragraph,
`concise` the first sentence of each. It must not know items, indices or the full text's events.
"""

from __future__ import annotations

import re
from typing import Any, Literal

Event = dict[str, Any]
SummaryKind = Literal["auto", "concise", "detailed"]

SUMMARY_EVENTS = {
    "response.reasoning_summary_part.added": "A paragraph of the summary begins.",
    "response.reasoning_summary_text.delta": "More text of the summary.",
    "response.reasoning_summary_text.done": "The text of the paragraph is complete.",
    "response.reasoning_summary_part.done": "The paragraph is complete.",
}
"""The events, for the API reference: each type, and when it is sent."""
_WORDS = re.compile(r"\s+|\S+")
_LONGEST_SENTENCE = 240  # characters; a longer sentence is cut
_SENTENCE_ENDS = re.compile(r"""[.!?…]["'”’)\]*_`]*$""")  # if white space follows
_FULL_STOPS = re.compile(r"[。！？]")  # in scripts without spaces


class Summary:
    """Feed it every delta, then close."""

    def __init__(self, kind: SummaryKind) -> None:
        self.parts: list[Event] = []  # the finished parts
        self._is_concise = kind == "concise"
        self._gap = ""  # white space held back, since it may separate two paragraphs
        self._open: list[str] | None = None  # the texts of the current part
        self._length = 0
        self._enough = False  # the rest of this paragraph is skipped
        self._due = ""

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        for piece in _WORDS.findall(text):
            if piece.isspace():
                self._gap += piece
            else:
                self._word(piece, events)
        self._flush(events)
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
            self._append(self._shortened(gap + word) if self._is_concise else gap + word)

    def _ends_here(self, gap: str) -> bool:
        end = "".join(self._open or ())[-8:] + self._due
        return "\n" in gap or _SENTENCE_ENDS.search(end) is not None

    def _shortened(self, text: str) -> str:
        """The start of the text that belongs to the first sentence."""
        stop = _FULL_STOPS.search(text)
        if stop is not None:
            text, self._enough = text[: stop.end()], True
        if self._length + len(text) > _LONGEST_SENTENCE:
            text, self._enough = text[: _LONGEST_SENTENCE - self._length].rstrip() + "…", True
        return text

    def _append(self, text: str) -> None:
        self._due += text
        self._length += len(text)

    def _begin_part(self, events: list[Event]) -> None:
        self._open, self._length, self._enough = [], 0, False
        events.append(self._event("part.added", part=_part("")))

    def _end_part(self, events: list[Event]) -> None:
        if self._open is None:
            return
        self._flush(events)
        part = _part("".join(self._open))
        events.append(self._event("text.done", text=part["text"]))
        events.append(self._event("part.done", part=part))
        self.parts.append(part)
        self._open = None

    def _flush(self, events: list[Event]) -> None:
        if self._due and self._open is not None:
            events.append(self._event("text.delta", delta=self._due))
            self._open.append(self._due)
            self._due = ""

    def _event(self, name: str, **fields: Any) -> Event:
        return {"type": f"response.reasoning_summary_{name}", "summary_index": len(self.parts), **fields}


def _part(text: str) -> Event:
    return {"type": "summary_text", "text": text}
