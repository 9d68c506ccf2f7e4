"""Room for connections: which of those that do nothing gives way to a new one.

One that waits for its next request goes first. Then come those that hold a place with a request that is not
whole or a WebSocket without work: of whoever has the most connections, the one that has waited longest. While
there is room above the limit, one whose request may be on the way gives way only to a request that has
arrived.
"""

from collections import Counter
from collections.abc import Collection
from typing import Protocol

SPARE = 16  # connections above the limit, which have no place until their request has arrived
HEALTH = (b"/health", b"/live", b"/ready")
_YOUNG = 1.0  # seconds in which a request may still arrive undisturbed


class Held(Protocol):
    """A connection, as its place is judged."""

    @property
    def holder(self) -> str: ...  # whose it is: the owner of a key, or an address

    @property
    def is_spare(self) -> bool: ...  # it is above the limit, and has no place that it could give up

    @property
    def idle_since(self) -> float | None: ...  # it has waited for a request; None if one begins to arrive

    @property
    def unfinished_since(self) -> float | None: ...  # it has held its place without work; None if it works


def gives_way(connections: Collection[Held], newest: Held, now: float, *, young: bool = False) -> Held | None:
    """`young`: also one that was opened, answered or begun a moment ago."""
    others = [other for other in connections if other is not newest and not other.is_spare]
    latest = now if young else now - _YOUNG
    idle = [(since, other) for other in others if (since := other.idle_since) is not None and since <= latest]
    if idle:
        return min(idle, key=lambda entry: entry[0])[1]
    counts = Counter(other.holder for other in others)
    unfinished = [
        (-counts[other.holder], since, other)
        for other in others
        if (since := other.unfinished_since) is not None and since <= latest
    ]
    return min(unfinished, key=lambda entry: entry[:2])[2] if unfinished else None
