"""A history as a chain of additions: each turn stores its own, and a reader gets them all in order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpt_oss_server.harmony.history import Segment

Position = str
"""A place in a chain. Only the store that created this name can read it."""

Call = tuple[str, str]
"""A call that waits for consent: its Harmony recipient and its arguments."""


class UnknownParent(Exception):
    """The parent of a new addition is deleted or another store's. Store the turn with its whole history."""


@dataclass(frozen=True, slots=True)
class Addition:
    """One turn's addition to its history. At the beginning of a chain: everything that later turns need."""

    segments: tuple[Segment, ...] = ()
    recipients: Mapping[str, str] = field(default_factory=dict)  # call_id → Harmony recipient
    approvals: Mapping[str, Call] = field(default_factory=dict)  # by request id: calls that wait from now on
    answered: tuple[str, ...] = ()  # request ids of calls that no longer wait


@dataclass(frozen=True, slots=True)
class History:
    """Everything that a turn continues from."""

    segments: tuple[Segment, ...] = ()
    recipients: Mapping[str, str] = field(default_factory=dict)  # call_id → Harmony recipient
    approvals: Mapping[str, Call] = field(default_factory=dict)  # by request id: calls that wait
    session: str = ""  # the key of the tools' sessions
    position: Position | None = None  # the end of the history: the parent of the next addition


_EMPTY = History()


def history_of(
    chain: Iterable[Addition], *, session: str, position: Position | None, after: History = _EMPTY
) -> History:
    """Folds a chain of additions, the oldest first, into a history that continues `after`."""
    segments: list[Segment] = []
    recipients = dict(after.recipients)
    approvals = dict(after.approvals)
    for added in chain:
        segments += added.segments
        recipients.update(added.recipients)
        for request_id in added.answered:
            approvals.pop(request_id, None)
        approvals.update(added.approvals)
    return History((*after.segments, *segments), recipients, approvals, session, position)
