"""The calls of one generation: a call that repeats an earlier one is found before anybody sees it.

Takes the events of the passages after the first call. Returns those that can be shown now: it holds back a
call for as long as its text is the beginning of an earlier call's, and drops it if it ends the same. It must
not know tools.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_oss_server.harmony.events import ClosedBy, MessageFinished, MessageStarted, TextDelta
from gpt_oss_server.turns.events import TurnEvent


class CallsMade:
    def __init__(self) -> None:
        self._made: list[tuple[str, str]] = []  # recipient and arguments
        self._held: list[TurnEvent] = []  # of the open call
        self._same: list[str] = []  # the earlier calls that the open one may repeat
        self._length = 0  # of the open call's text

    def __len__(self) -> int:
        return len(self._made)

    def add(self, call: MessageFinished) -> None:
        assert call.header.recipient is not None
        self._made.append((call.header.recipient, call.text))

    def feed(self, events: Sequence[TurnEvent]) -> list[TurnEvent]:
        out: list[TurnEvent] = []
        for event in events:
            if isinstance(event, MessageStarted):
                out += self.release()
                self._same = [text for to, text in self._made if to == event.header.recipient]
                self._length = 0
            if not self._same:
                out.append(event)
                continue
            self._held.append(event)
            if isinstance(event, TextDelta):
                self._same = [text for text in self._same if text.startswith(event.text, self._length)]
                self._length += len(event.text)
                if not self._same:
                    out += self.release()
        return out

    def repeats(self, call: MessageFinished) -> bool:
        """Whether the call, which ended the passage, repeats an earlier one. Its events are dropped then."""
        if call.closed_by is ClosedBy.TRUNCATED or call.text not in self._same:
            return False
        self._held, self._same = [], []
        return True

    def release(self) -> list[TurnEvent]:
        """Return the events that are still held back."""
        held, self._held, self._same = self._held, [], []
        return held
