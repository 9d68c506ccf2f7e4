"""Repetition in a turn: of tokens, messages and calls, and rounds of tools that change nothing.

Takes sampled tokens, events or results in order. Returns whether the turn repeats itself, so that it must
end, and the events that can be shown meanwhile. It must not know engines or APIs.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from gpt_oss_server.harmony.encoding import START, Encoding
from gpt_oss_server.harmony.events import ClosedBy, MessageFinished, MessageStarted, TextDelta
from gpt_oss_server.turns.events import TurnEvent

_EVERY = 16  # tokens between two checks: one check costs about 2 µs
_CLUE = 4  # tokens; where the last ones occurred before, a cycle may have begun
_LEAST_CYCLES = 3
_SAME_MESSAGES = 3
_SAME_ROUNDS = 8  # a model that polls a slow job repeats itself too


class WarningKind(StrEnum):
    """Why the server ended a turn, or let it go on, apart from the limits of the request."""

    REPETITION = "repetition"
    REPEATED_CALL = "repeated_call"
    TOO_MANY_CALLS = "too_many_calls"
    ASKED_AGAIN = "asked_again"  # after a turn of reasoning alone
    NO_ANSWER = "no_answer"


@dataclass(frozen=True, slots=True)
class TurnWarning:
    """A decision of the server about a turn: its kind, and a sentence for a developer."""

    kind: WarningKind
    detail: str


def written_so_far(prompt: Sequence[int], encoding: Encoding) -> list[int]:
    """What the model has written since the user's last message: in this turn, also in earlier requests."""
    [model], [user] = encoding.encode("assistant"), encoding.encode("user")
    starts = [at for at, token in enumerate(prompt) if token == START]
    written: list[int] = []
    for start, end in pairwise([*starts, len(prompt)]):
        author = prompt[start + 1] if start + 1 < end else None
        if author == user:
            written.clear()
        elif author == model:
            written += prompt[start:end]
    return written


class Cycles:
    """Finds a cycle of tokens that fills the last `limit` tokens at least three times over."""

    def __init__(self, limit: int, written: Sequence[int] = ()) -> None:
        """`written`: tokens before those that are fed."""
        self._limit = limit
        self._longest = limit * 5 // 8  # so that three cycles are less than twice the limit
        self._tail = list(written)
        self._unchecked = 0

    def feed(self, tokens: Sequence[int]) -> TurnWarning | None:
        self._tail += tokens
        self._unchecked += len(tokens)
        if self._unchecked < _EVERY:
            return None
        self._unchecked = 0
        del self._tail[: -2 * self._limit]
        cycle = self._cycle()
        if cycle is None:
            return None
        return TurnWarning(
            WarningKind.REPETITION,
            f"The model repeated {f'the same {cycle} tokens' if cycle > 1 else 'one token'} over and over, "
            f"{max(self._limit, _LEAST_CYCLES * cycle)} tokens in all, so the generation was ended "
            "(--repetition-limit).",
        )

    def _cycle(self) -> int | None:
        """The length of the cycle at the end, if any. `bytes` compares at the speed of C."""
        tail = array("I", self._tail)
        width, data = tail.itemsize, tail.tobytes()
        clue = data[-_CLUE * width :]
        at = len(data) - len(clue)
        while (at := data.rfind(clue, 0, at + len(clue) - 1)) >= 0:
            cycle, odd = divmod(len(data) - len(clue) - at, width)
            if cycle > self._longest:
                return None
            whole = max(self._limit, _LEAST_CYCLES * cycle) * width
            shift = cycle * width
            if not odd and whole <= len(data) and data[-whole:-shift] == data[-whole + shift :]:
                return cycle
        return None


class Asides:
    """Finds reasoning or a preamble that is repeated word for word, without a call or an answer between."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._times = 0

    def repeats(self, event: MessageStarted | MessageFinished) -> TurnWarning | None:
        """A warning if another aside begins after several that were the same."""
        header = event.header
        if header.recipient is not None or header.channel == "final":
            self._last, self._times = None, 0
        elif isinstance(event, MessageFinished):
            same = self._last == (header.channel, event.text)
            self._last, self._times = (header.channel, event.text), self._times + 1 if same else 1
        elif self._times >= _SAME_MESSAGES:
            return TurnWarning(
                WarningKind.REPETITION,
                f"The model wrote the same message on the {header.channel} channel {self._times} times in a "
                "row, so the generation was ended.",
            )
        return None


class CallsMade:
    """The calls of one generation: one that repeats an earlier call is found before anybody sees it.

    It holds back a call for as long as its text is the beginning of an earlier one's.
    """

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


Round = tuple[tuple[str, str, str], ...]
"""The calls between two generations, each with its recipient, arguments and result."""


class Rounds:
    """Finds rounds of tools that are the same again and again, with the same results."""

    def __init__(self) -> None:
        self._last: Round = ()
        self._times = 0

    def add(self, made: Round) -> TurnWarning | None:
        self._times = self._times + 1 if made == self._last else 1
        self._last = made
        if self._times < _SAME_ROUNDS:
            return None
        names = ", ".join(sorted({recipient for recipient, _, _ in made}))
        return TurnWarning(
            WarningKind.REPETITION,
            f"The model made the same call of {names} {self._times} times and got the same result each time, "
            "so the turn was ended.",
        )
