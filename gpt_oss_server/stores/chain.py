"""A history as a chain of additions: each turn stores its own, and a reader gets them all in order.

In: what one turn adds to a history. Out: the whole history, folded from the additions of the chain that ends
with that turn. It must not know how a store holds the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpt_oss_server.harmony.history import Segment

Position = str
"""A place in a chain, as the store that made it names it. Only that store can read the name."""

Call = tuple[str, str]
"""A call that waits for consent: its Harmony recipient and its arguments."""


class UnknownParent(Exception):
    """The store does not hold the parent of a new addition. Store the turn with its whole history instead.

    This happens when the parent is deleted or evicted while its child is generated, or when the parent is in
    another store.
    """


@dataclass(frozen=True, slots=True)
class Addition:
    """What one turn adds to its history. At the beginning of a chain: all that later turns need."""

    segments: tuple[Segment, ...] = ()
    recipients: Mapping[str, str] = field(default_factory=dict)  # call_id → Harmony recipient
    approvals: Mapping[str, Call] = field(default_factory=dict)  # by request id: calls that now wait
    answered: tuple[str, ...] = ()  # request ids of earlier calls that wait no longer


@dataclass(frozen=True, slots=True)
class History:
    """All that a turn continues from."""

    segments: tuple[Segment, ...] = ()
    recipients: Mapping[str, str] = field(default_factory=dict)  # call_id → Harmony recipient
    approvals: Mapping[str, Call] = field(default_factory=dict)  # by request id: calls that wait
    session: str = ""  # the key of the tools' sessions
    position: Position | None = None  # where it ends; the parent of the next addition


def history_of(chain: Iterable[Addition], *, session: str, position: Position | None) -> History:
    """The history that a chain of additions comes to, the oldest first."""
    segments: list[Segment] = []
    recipients: dict[str, str] = {}
    approvals: dict[str, Call] = {}
    for added in chain:
        segments += added.segments
        recipients.update(added.recipients)
        for request_id in added.answered:
            approvals.pop(request_id, None)
        approvals.update(added.approvals)
    return History(tuple(segments), recipients, approvals, session, position)
