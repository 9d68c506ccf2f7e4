"""Room for connections: which of those that do nothing gives way to a new one.

Takes the open connections. Returns the one to close, or None where all are at work, or have just been opened
or answered: their request may be on the way. One that waits for its next request goes first. Then come those
that hold a place with a request that is not whole or a WebSocket without work: of whoever has the most
connections, the one that has waited longest.
"""

from collections import Counter
from collections.abc import Collection
from typing import Protocol

SPARE = 16  # connections above the limit, which may only ask for the server's health
HEALTH = (b"/health", b"/live", b"/ready")
_YOUNG = 1.0  # seconds in which a request may still arrive undisturbed


class Held(Protocol):
    """A connection, as its place is judged."""

    @property
    def holder(self) -> str:
        """Whose it is: the owner of a key, or an address."""
        ...

    @property
    def idle_since(self) -> float | None:
        """Since when it has waited for a request; None if one has begun to arrive."""
        ...

    @property
    def unfinished_since(self) -> float | None:
        """Since when it has held its place without work for the server; None if it works."""
        ...


def gives_way(connections: Collection[Held], newest: Held, now: float) -> Held | None:
    others = [other for other in connections if other is not newest]
    before = now - _YOUNG
    idle = [(since, other) for other in others if (since := other.idle_since) is not None and since < before]
    if idle:
        return min(idle, key=lambda entry: entry[0])[1]
    counts = Counter(other.holder for other in others)
    unfinished = [
        (-counts[other.holder], since, other)
        for other in others
        if (since := other.unfinished_since) is not None and since < before
    ]
    return min(unfinished, key=lambda entry: entry[:2])[2] if unfinished else None
