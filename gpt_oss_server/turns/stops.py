"""Finds stop strings in a text that arrives in arbitrary pieces.

Takes pieces of text. Returns the text that can be shown now. It holds text back only while the end can still
become a stop string. After a stop string it shows nothing, and the stop string itself only if the request
includes it.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """`feed` every piece until `found` is set or the text ends, then `close`."""

    def __init__(self, stops: Sequence[str], *, shows_stop: bool = False) -> None:
        self.found: str | None = None
        self._stops = tuple(stops)
        self._shows_stop = shows_stop
        self._held = ""

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        if not self._stops:
            return text
        held = self._held + text
        places = [(place, stop) for stop in self._stops if (place := held.find(stop)) >= 0]
        if places:
            # The stop string that was complete first; if several were, the one that began first.
            place, self.found = min(places, key=lambda found: (found[0] + len(found[1]), found[0]))
            self._held = ""
            return held[: place + len(self.found)] if self._shows_stop else held[:place]
        kept = self._beginning_at_end(held)
        self._held = held[len(held) - kept :]
        return held[: len(held) - kept]

    def close(self) -> str:
        """Return the text that is still held back, as it did not become a stop string."""
        held, self._held = self._held, ""
        return held

    def _beginning_at_end(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
