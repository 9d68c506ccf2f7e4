"""Which values of a call stand in the request for it, and where: found again in the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from inference.tiny.talk import CALL, CONSTRAIN, END, MESSAGE, PAST, Talk, tokens_of
from inference.tiny.vocabulary import token_table, without_space

NOTHING, BEGINS, GOES_ON = range(3)  # what a token of a request is to a value
_BEHIND = 5  # places behind a value where its parameter's name may begin


@dataclass(frozen=True, slots=True)
class Copy:
    """A value of a call that stands in the request."""

    place: int  # in the call, where it is about to be written
    name: tuple[int, ...]  # of the parameter, as the call has it
    begin: int  # in the request
    end: int


def copies_of(talk: Talk, requests: Sequence[int]) -> Iterator[tuple[int, list[Copy], bool]]:
    """Of every call: where the request for it begins, which values stand there at one place alone, and
    whether no other stands there at all."""
    tokens = talk.tokens
    pieces = token_table().pieces[tokens, 0]
    for turn in talk.turns:
        if turn.kind == PAST or CONSTRAIN not in tokens[turn.start : turn.end]:
            continue
        asked = max(at for at in requests if at < turn.start)
        copies, sure = [], True
        for place, name, value in _values(tokens, turn.start, turn.end):
            alike = asked + np.flatnonzero(pieces[asked : turn.start] == value[0]) if value else ()
            lengths = {int(at): _length(tokens[at : turn.start], value) for at in alike}
            found = [(at, at + length) for at, length in lengths.items() if length]
            if len(found) == 1:
                copies.append(Copy(place, tuple(name), *found[0]))
            sure = sure and len(found) < 2
        yield asked, copies, sure


def held(talk: Talk, copies: Sequence[Copy]) -> Iterator[tuple[int, int]]:
    """The values' further tokens, and the name of the parameter where it follows, with what they are of."""
    pieces = token_table().pieces[talk.tokens, 0].tolist()
    for copy in copies:
        first = talk.tokens[copy.begin]
        yield from ((place, first) for place in range(copy.begin + 1, copy.end))
        name = token_table().pieces[list(copy.name), 0].tolist()
        for begin in range(copy.end, copy.end + _BEHIND):
            if pieces[begin : begin + len(name)] == name:
                yield from ((place, first) for place in range(begin, begin + len(name)))
                break


def tags(talk: Talk, asked: int, copies: Sequence[Copy]) -> Iterator[tuple[int, int]]:
    """What each token of a request is to a value."""
    begins = {copy.begin for copy in copies}
    further = {place for copy in copies for place in range(copy.begin + 1, copy.end)}
    begun = talk.tokens.index(MESSAGE, asked) + 1
    for place in range(begun, talk.tokens.index(END, begun)):
        yield place, BEGINS if place in begins else GOES_ON if place in further else NOTHING


def _values(
    tokens: Sequence[int], start: int, end: int
) -> Iterator[tuple[int, Sequence[int], Sequence[int]]]:
    """The values of a call between these places: where each is about to be written, its name and tokens."""
    (colon,) = tokens_of(":")
    begun = tokens.index(CONSTRAIN, start, end)
    for place in range(begun + 1, end):
        if tokens[place - 1] == colon and tokens[place] in _opening():
            close = next(at for at in range(place + 1, end) if tokens[at] in _closing())
            named = next(at for at in range(place - 3, begun, -1) if tokens[at] in _naming())
            yield place, tokens[named + 1 : place - 2], tokens[place + 1 : close]


@cache
def _naming() -> frozenset[int]:
    return frozenset(token for mark in ('{"', ' "') for token in tokens_of(mark))


@cache
def _opening() -> frozenset[int]:
    return frozenset(token for mark in (' "', " ") for token in tokens_of(mark))


@cache
def _closing() -> frozenset[int]:
    return frozenset({CALL}.union(*(tokens_of(mark) for mark in ('"', '",', '"}', ",", "}"))))


def _length(tokens: Sequence[int], value: Sequence[int]) -> int:
    """How many of `tokens` are `value` at their beginning, where a space may lead; 0: it is not there."""
    for first in ([tokens[0]], list(without_space(tokens[0]))):
        further = len(value) - len(first)
        if [*first, *tokens[1 : 1 + further]] == value:
            return 1 + further
    return 0
