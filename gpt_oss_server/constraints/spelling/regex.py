"""A regular expression as a tree of nodes, as far as it can be one.

None is for what a tree cannot express: a look at what surrounds the match, a reference to an earlier group,
classes by name. Classes that have both signs with which the names of special tokens begin lose the first:
engines would read such a name as text.
"""

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
_CLASSES = {
    "d": ((48, 57),),
    "s": ((9, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122), (0xAA, LAST_CODE)),  # the check knows the letters
}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_HEX = {"x": 2, "u": 4}
_WITHIN_CLASS = ("[", "&&", "--", "~~")  # classes within a class, such as `[:alpha:]`, and what joins them
_TIMES: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

Ranges = tuple[tuple[int, int], ...]


class _Unreadable(Exception):
    pass


def node_of_pattern(pattern: str) -> Node | None:
    if "<|" in pattern:
        return None
    reader = _PatternReader(pattern)
    try:
        node = reader.options()
    except (_Unreadable, IndexError, ValueError):
        return None
    return node if reader.is_at_end else None


class _PatternReader:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._pattern)

    def options(self) -> Node:
        options = [self._sequence()]
        while self._takes("|"):
            options.append(self._sequence())
        return choice(options)

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
        while not self.is_at_end and self._pattern[self._at] in "*+?{":
            least, most = _TIMES.get(self._next()) or self._times()
            self._takes("?")  # a lazy one matches the same texts
            if _may_be_empty(node):
                raise _Unreadable
            node = Repeat(node, least, most)
        return node

    def _times(self) -> tuple[int, int | None]:
        end = self._pattern.index("}", self._at)
        least, comma, most = self._pattern[self._at : end].partition(",")
        self._at = end + 1
        low, high = int(least), None if comma and not most else int(most or least)
        if max(low, high or 0) > _MOST_TIMES:
            raise _Unreadable
        return low, high

    def _escape(self) -> Ranges:
        sign = self._next()
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign.lower() in _CLASSES:
            return _without(_CLASSES[sign.lower()])
        if sign in _HEX:
            digits = self._pattern[self._at : self._at + _HEX[sign]]
            self._at += _HEX[sign]
            return _only(int(digits, 16))
        if sign.isalnum() and sign not in _CONTROLS:
            raise _Unreadable
        return _only(_CONTROLS.get(sign, ord(sign)))

    def _class(self) -> Ranges:
        negates = self._takes("^")
        ranges: list[tuple[int, int]] = []
        while not self._takes("]"):
            if self._pattern.startswith(_WITHIN_CLASS, self._at):
                raise _Unreadable
            first = self._member()
            if first == _only(first[0][0]) and self._begins_range():
                self._next()
                last = self._member()
                if len(last) != 1 or last[0][0] < first[0][0]:
                    raise _Unreadable
                ranges.append((first[0][0], last[0][0]))
            else:
                ranges += first
        if not ranges:
            raise _Unreadable
        return _without(tuple(ranges)) if negates else tuple(ranges)

    def _member(self) -> Ranges:
        return self._escape() if self._takes("\\") else _only(ord(self._next()))

    def _begins_range(self) -> bool:
        return self._pattern.startswith("-", self._at) and self._pattern[self._at + 1] != "]"


def _only(code: int) -> Ranges:
    return ((code, code),)


def _unspelt(ranges: Ranges) -> Chars:
    sign, bar = ord("<"), ord("|")
    if sign not in Chars(ranges) or bar not in Chars(ranges):
        return Chars(ranges)
    return Chars(_without((*_without(ranges), (sign, sign))))


def _without(ranges: Ranges) -> Ranges:
    others, begin = [], 0
    for low, high in sorted((*ranges, (LAST_CODE + 1, LAST_CODE + 1))):
        if low > begin:
            others.append((begin, low - 1))
        begin = max(begin, high + 1)
    return tuple(others)


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
