"""A regular expression as a tree of nodes, as far as it can be one.

Takes a pattern of which a text must be a whole match. Returns a node, or None for what a tree cannot express:
a look at what surrounds the match, a reference to an earlier group, classes by name. Classes that have both
signs with which the names of special tokens begin lose the first: engines would read such a name as text.
"""

from __future__ import annotations

from gpt_oss_server.constraints.spelling.nodes import (
    LAST_CODE,
    All,
    Chars,
    Choice,
    Node,
    Repeat,
    choice,
    sequence,
)

_MOST_TIMES = 200  # of a repetition with a number; each is a state of the grammar
_DIGITS, _SPACES = ((48, 57),), ((9, 13), (32, 32))
_WORDS = (
    (48, 57),
    (65, 90),
    (95, 95),
    (97, 122),
    (0xAA, LAST_CODE),
)  # the check knows the letters
_CLASSES = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_HEX = {"x": 2, "u": 4}

Ranges = tuple[tuple[int, int], ...]


class _Unreadable(Exception):
    pass


def node_of_pattern(pattern: str) -> Node | None:
    if "<|" in pattern:
        return None
    reader = _PatternReader(pattern)
    try:
        found = reader.options()
    except (_Unreadable, IndexError, ValueError):
        return None
    return found if reader.is_at_end else None


class _PatternReader:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._pattern)

    def options(self) -> Node:
        found = [self._sequence()]
        while self._takes("|"):
            found.append(self._sequence())
        return choice(found)

    def _sequence(self) -> Node:
        parts = []
        while not self.is_at_end and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return sequence(*parts)

    def _takes(self, sign: str) -> bool:
        if self._pattern.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _next(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1]

    def _atom(self) -> Node:
        sign = self._next()
        if sign == "(":
            if self._takes("?") and not self._takes(":"):
                raise _Unreadable
            inner = self.options()
            if not self._takes(")"):
                raise _Unreadable
            return inner
        if sign == "[":
            return _unspelt(self._class())
        if sign == ".":
            return _unspelt(_without(((10, 10),)))
        if sign == "\\":
            return _unspelt(self._escape())
        if sign in "^$*+?{":
            raise _Unreadable
        return sequence(sign)

    def _repeated(self, node: Node) -> Node:
        while not self.is_at_end:
            if self._takes("*"):
                least, most = 0, None
            elif self._takes("+"):
                least, most = 1, None
            elif self._takes("?"):
                least, most = 0, 1
            elif self._takes("{"):
                least, most = self._times()
            else:
                return node
            self._takes("?")  # a lazy one matches the same texts
            if _may_be_empty(node):
                raise _Unreadable
            node = Repeat(node, least, most)
        return node

    def _times(self) -> tuple[int, int | None]:
        end = self._pattern.index("}", self._at)
        least, comma, most = self._pattern[self._at : end].partition(",")
        self._at = end + 1
        found = int(least), None if comma and not most else int(most or least)
        if max(found[0], found[1] or 0) > _MOST_TIMES:
            raise _Unreadable
        return found

    def _escape(self) -> Ranges:
        sign = self._next()
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign.lower() in _CLASSES:
            return _without(_CLASSES[sign.lower()])
        if sign in _HEX:
            digits = self._pattern[self._at : self._at + _HEX[sign]]
            self._at += _HEX[sign]
            return ((int(digits, 16), int(digits, 16)),)
        if sign in _CONTROLS:
            return ((_CONTROLS[sign], _CONTROLS[sign]),)
        if sign.isalnum():
            raise _Unreadable
        return ((ord(sign), ord(sign)),)

    def _class(self) -> Ranges:
        negates = self._takes("^")
        found: list[tuple[int, int]] = []
        while not self._takes("]"):
            low = (
                self._escape() if self._takes("\\") else ((ord(self._pattern[self._at]), ord(self._next())),)
            )
            is_range = len(low) == 1 and low[0][0] == low[0][1]
            if is_range and self._pattern.startswith("-", self._at) and self._pattern[self._at + 1] != "]":
                self._at += 1
                high = self._escape() if self._takes("\\") else ((ord(self._next()),) * 2,)
                if len(high) != 1 or high[0][0] < low[0][0]:
                    raise _Unreadable
                found.append((low[0][0], high[0][0]))
            else:
                found += low
        if not found:
            raise _Unreadable
        return _without(tuple(found)) if negates else tuple(found)


def _unspelt(ranges: Ranges) -> Chars:
    sign, bar = ord("<"), ord("|")
    found = Chars(ranges)
    if sign not in found or bar not in found:
        return found
    return Chars(_without(tuple(sorted((*_without(ranges), (sign, sign))))))


def _without(ranges: Ranges) -> Ranges:
    found, begin = [], 0
    for low, high in sorted(ranges):
        if low > begin:
            found.append((begin, low - 1))
        begin = max(begin, high + 1)
    if begin <= LAST_CODE:
        found.append((begin, LAST_CODE))
    return tuple(found)


def _may_be_empty(node: Node) -> bool:
    match node:
        case All(parts):
            return all(map(_may_be_empty, parts))
        case Choice(options):
            return any(map(_may_be_empty, options))
        case Repeat(inner, least, _):
            return least == 0 or _may_be_empty(inner)
        case _:
            return False
