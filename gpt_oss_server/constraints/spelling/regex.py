"""A regular expression as a tree of nodes, as far as it can be one.

Python's own parser reads it. None is for what a tree cannot express (a look at what surrounds the match, a
reference to an earlier group) and for what other libraries read otherwise, such as classes within a class.
Classes that have both signs with which the names of special tokens begin lose the first: engines would read
such a name as text.
"""

import re
from collections.abc import Iterable
from re import _constants as signs  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from gpt_oss_server.constraints.spelling import nodes

_MOST_TIMES = 200  # of a repetition with a number; each is a state of the grammar
_CLASSES = {
    "CATEGORY_DIGIT": ((48, 57),),
    "CATEGORY_SPACE": ((9, 13), (32, 32)),
    # The check knows the letters.
    "CATEGORY_WORD": ((48, 57), (65, 90), (95, 95), (97, 122), (0xAA, nodes.LAST_CODE)),
}
_OTHERWISE = ("<|", "[[", "&&", "--", "~~")  # a name of a special token, and what joins classes elsewhere

Ranges = tuple[tuple[int, int], ...]


class _Unreadable(Exception):
    pass


def node_of_pattern(pattern: str) -> nodes.Node | None:
    if any(sign in pattern for sign in _OTHERWISE):
        return None
    try:
        parsed = _parser.parse(pattern)
        return None if parsed.state.flags != re.UNICODE else _sequence(parsed)
    except (_Unreadable, re.error, OverflowError, RecursionError):
        return None


def _sequence(parsed: Iterable[Any]) -> nodes.Node:
    return nodes.sequence(*map(_node, parsed))


def _node(item: tuple[Any, Any]) -> nodes.Node:
    match item:
        case (signs.LITERAL, code):
            return nodes.sequence(chr(code))
        case (signs.NOT_LITERAL, code):
            return _unspelt(_without(_only(code)))
        case (signs.ANY, _):
            return _unspelt(_without(_only(10)))
        case (signs.IN, [(signs.NEGATE, _), *members]):
            return _unspelt(_without(_members(members)))
        case (signs.IN, members):
            return _unspelt(_members(members))
        case (signs.BRANCH, (_, options)):
            return nodes.choice([_sequence(option) for option in options])
        case (signs.SUBPATTERN, (_, 0, 0, inner)):  # without flags of its own
            return _sequence(inner)
        case (signs.MAX_REPEAT | signs.MIN_REPEAT, (least, most, inner)):  # a lazy one matches the same texts
            limit = None if most is signs.MAXREPEAT else int(most)
            node = _sequence(inner)
            if max(least, limit or 0) > _MOST_TIMES or _may_be_empty(node):
                raise _Unreadable
            return nodes.Repeat(node, least, limit)
        case _:
            raise _Unreadable


def _members(members: Iterable[tuple[Any, Any]]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for kind, value in members:
        if kind is signs.RANGE:
            ranges.append(value)
        elif kind is signs.LITERAL and value != ord("["):  # elsewhere, it begins a class within the class
            ranges += _only(value)
        elif (own := _CLASSES.get(str(value).replace("NOT_", ""))) is not None:
            ranges += _without(own) if "NOT_" in str(value) else own
        else:
            raise _Unreadable
    return tuple(ranges)


def _only(code: int) -> Ranges:
    return ((code, code),)


def _unspelt(ranges: Ranges) -> nodes.Chars:
    sign, bar = ord("<"), ord("|")
    if sign not in nodes.Chars(ranges) or bar not in nodes.Chars(ranges):
        return nodes.Chars(ranges)
    return nodes.Chars(_without((*_without(ranges), (sign, sign))))


def _without(ranges: Ranges) -> Ranges:
    others, begin = [], 0
    for low, high in sorted((*ranges, (nodes.LAST_CODE + 1, nodes.LAST_CODE + 1))):
        if low > begin:
            others.append((begin, low - 1))
        begin = max(begin, high + 1)
    return tuple(others)


def _may_be_empty(node: nodes.Node) -> bool:
    match node:
        case nodes.All(parts):
            return all(map(_may_be_empty, parts))
        case nodes.Choice(options):
            return any(map(_may_be_empty, options))
        case nodes.Repeat(inner, least, _):
            return least == 0 or _may_be_empty(inner)
        case _:
            return False
