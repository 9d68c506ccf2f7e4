"""The chains of the memory store, whose links live as long as something needs them.

Takes additions and their parents. Returns the additions of a chain, and the number of bytes that all links
keep alive. Each link counts its holders: its owner (a response or a conversation) and its children.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from pydantic_core import to_json

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.chain import Addition, Position, UnknownParent

_BYTES_PER_TOKEN = 40  # a tuple's slot and the int object it points to
_BYTES_PER_SEGMENT = 200  # the segment, its tuple and its entry in the table of holders
_BYTES_PER_CALL = 200  # an entry of a dict with its texts


@dataclass(slots=True)
class _Link:
    parent: Position | None
    added: Addition
    size: int  # without its segments
    holders: int = 1


class Chains:
    def __init__(self) -> None:
        self._links: dict[Position, _Link] = {}
        self._numbers = count(1)
        self._segments = _Segments()
        self.bytes = 0

    def add(self, parent: Position | None, added: Addition) -> Position:
        """Adds a link with one holder, its owner."""
        if parent is not None:
            if parent not in self._links:
                raise UnknownParent(parent)
            self._links[parent].holders += 1
        position = str(next(self._numbers))
        self._links[position] = link = _Link(parent, added, _size_without_segments(added))
        self.bytes += link.size + self._segments.hold(added.segments)
        return position

    def clear(self) -> None:
        self._links.clear()
        self._segments = _Segments()
        self.bytes = 0

    def release(self, position: Position | None) -> None:
        """Removes one holder. A link without holders is deleted, and no longer holds its parent."""
        while position is not None:
            link = self._links[position]
            link.holders -= 1
            if link.holders:
                return
            del self._links[position]
            self.bytes -= link.size + self._segments.release(link.added.segments)
            position = link.parent

    def read(self, position: Position | None) -> list[Addition]:
        """The additions of the chain that ends here, the oldest first."""
        chain: list[Addition] = []
        while position is not None:
            link = self._links[position]
            chain.append(link.added)
            position = link.parent
        return chain[::-1]


@dataclass(slots=True)
class _Held:
    """A segment that the store keeps alive, which also keeps its `id()` unique."""

    segment: Segment
    size: int
    holders: int = 0


class _Segments:
    """The segments of all links, each counted once: links that begin a chain may share segments."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def hold(self, segments: Iterable[Segment]) -> int:
        """Returns how many more bytes are kept alive."""
        added = 0
        for segment in segments:
            held = self._held.get(id(segment))
            if held is None:
                held = self._held[id(segment)] = _Held(segment, _size_of_segment(segment))
                added += held.size
            held.holders += 1
        return added

    def release(self, segments: Iterable[Segment]) -> int:
        """Returns how many bytes are no longer kept alive."""
        freed = 0
        for segment in segments:
            held = self._held[id(segment)]
            held.holders -= 1
            if not held.holders:
                freed += held.size
                del self._held[id(segment)]
        return freed


def size_of_addition(added: Addition) -> int:
    """An estimate of the bytes that it keeps alive if nothing else shares its segments."""
    segments = {id(segment): segment for segment in added.segments}
    return _size_without_segments(added) + sum(map(_size_of_segment, segments.values()))


def _size_without_segments(added: Addition) -> int:
    approvals = sum(_BYTES_PER_CALL + len(arguments) for _, arguments in added.approvals.values())
    return 8 * len(added.segments) + _BYTES_PER_CALL * len(added.recipients) + approvals


def _size_of_segment(segment: Segment) -> int:
    tools = len(to_json(segment.tools)) if segment.tools else 0
    return _BYTES_PER_SEGMENT + _BYTES_PER_TOKEN * len(segment.tokens) + len(segment.text or "") + tools
