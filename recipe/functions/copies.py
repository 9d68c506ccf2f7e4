"""The places of a call's values: in the request, in the thought that restates it, and in the call itself.

All of them are found in the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from recipe.functions.restating import BEFORE, CLOSES, LEADS, NAMED, OPENS
from recipe.text.talk import CONSTRAIN, END, MESSAGE, PAST, START, Talk, Turn, tokens_of
from recipe.text.vocabulary import ordinary_bytes, token_table, without_space

NOTHING, BEGINS, CONTINUES = range(3)  # the role of a request's token in a value
_NEAR = 6  # the largest distance between a value and its parameter's name


@dataclass(frozen=True, slots=True)
class Copy:
    """A value of a call that the request contains."""

    name: tuple[int, ...]  # of the parameter, in tokens
    begin: int  # in the request
    end: int
    opens: int  # in the thought: its opening mark
    named: int  # in the thought: its parameter's name
    restated: int  # in the thought: the value itself
    naming: int  # in the call: where its name is about to be written
    place: int  # in the call: where the value is
    same: bool  # whether the call has the value as in the request


def copies_of(talk: Talk, requests: Sequence[int]) -> Iterator[tuple[range, list[Copy]]]:
    """For every call with a thought: the place of its request, and the values in it."""
    tokens = talk.tokens
    for turn in talk.turns:
        if turn.kind == PAST or CONSTRAIN not in tokens[turn.start : turn.end]:
            continue
        last = max(at for at in requests if at < turn.start)
        begun = tokens.index(MESSAGE, last) + 1
        request = range(begun, tokens.index(END, begun))
        yield request, list(_copies(tokens, request, turn))


def _copies(tokens: Sequence[int], request: range, turn: Turn) -> Iterator[Copy]:
    """Goes through the request and the thought that restates it in parallel."""
    (leads,), (opens,), (closes,) = (tokens_of(mark) for mark in (LEADS, OPENS, CLOSES))
    call = tokens.index(CONSTRAIN, turn.start)
    if leads not in tokens[turn.start : call]:
        return
    at, there = tokens.index(leads, turn.start) + 1, request.start
    values = {(opens, *name, *tokens_of(NAMED)): value for name, *value in _values(tokens, call, turn.end)}
    while values:
        if at >= call:
            raise ValueError(f"values that the thought does not mark: {sorted(values)}")
        marked = next((mark for mark in values if tuple(tokens[at : at + len(mark)]) == mark), None)
        if marked is None:
            at, there = at + 1, there + 1
            continue
        naming, place = values.pop(marked)
        name, restated = marked[1:-1], at + len(marked)
        while ordinary_bytes(tokens[restated]) in BEFORE:
            restated, there = restated + 1, there + 1
        begin, end = there, restated
        while tokens[end] != closes:
            end, there = end + 1, there + 1
        expected = [*without_space(tokens[restated]), *tokens[restated + 1 : end]]
        same = expected == list(tokens[place + 1 : place + 1 + len(expected)])
        yield Copy(name, begin, there, at, at + 1, restated, naming, place, same)
        at = end + 1


def held(talk: Talk, copies: Sequence[Copy]) -> Iterator[tuple[int, int]]:
    """The values' further tokens, and a parameter's name after its value, with the value's first token."""
    for copy in copies:
        first = talk.tokens[copy.begin]
        yield from ((place, first) for place in range(copy.begin + 1, copy.end))
        after = _name_near(talk, copy.name, range(copy.end, copy.end + _NEAR))
        if after is not None:
            yield from ((place, first) for place in range(after, after + len(copy.name)))


def looks(talk: Talk, copies: Sequence[Copy], names: dict[tuple[int, ...], int]) -> Iterator[tuple[int, int]]:
    """Where a part of a call is about to be written, and where to copy it from.

    A parameter's name is copied from near its value if possible, else from the declaration. `names` are
    those of the functions, with the places of their declarations.
    """
    declared = _declared(talk.tokens, copies[0].naming, names) if copies else None
    for number, copy in enumerate(copies):
        first = copies[number - 1].restated if number else 0
        before = _name_near(talk, copy.name, range(max(first, copy.opens - _NEAR), copy.opens))
        after = _name_near(talk, copy.name, range(copy.end, copy.end + _NEAR))
        named = next((place for place in (before, after) if place is not None), None)
        if named is None and declared is not None:
            named = _parameter(talk.tokens, declared, copy.name)
        if named is not None:
            yield copy.opens, named
        yield copy.naming, copy.named
        if copy.same:
            yield copy.place, copy.restated


def _declared(tokens: Sequence[int], called: int, names: dict[tuple[int, ...], int]) -> int | None:
    """The declaration of the function that is called just before this place."""
    header = called_before(tokens, called)
    name = _text(tokens[header.start : header.stop])
    return next((at for declared, at in names.items() if _text(declared) == name), None)


def called_before(tokens: Sequence[int], place: int) -> range:
    """The name in the last call before this place; its first token may include the dot."""
    (functions,) = tokens_of("functions")
    end = max(at for at in range(place) if tokens[at] == CONSTRAIN)
    begin = max(at for at in range(end) if tokens[at] == START)
    return range(tokens.index(functions, begin) + 1, end)


def _text(tokens: Sequence[int]) -> str:
    """The text of a name's tokens, without surrounding spaces and dots."""
    return b"".join(map(ordinary_bytes, tokens)).decode("utf-8", "replace").strip(" .")


def _parameter(tokens: Sequence[int], function: int, name: Sequence[int]) -> int | None:
    """The declaration of this function's parameter, at the beginning of a line."""
    (ends,) = tokens_of(" any")
    for at in range(function, tokens.index(ends, function)):
        in_front = ordinary_bytes(tokens[at - 1]).endswith(b"\n")
        if in_front and tuple(tokens[at : at + len(name)]) == tuple(name):
            return at
    return None


def _name_near(talk: Talk, name: Sequence[int], places: range) -> int | None:
    """The first of these places with a parameter's name; None if there is none."""
    pieces = token_table().pieces[talk.tokens[places.start : places.stop + len(name)], 0].tolist()
    wanted = token_table().pieces[list(name), 0].tolist()
    for further in range(len(places)):
        if pieces[further : further + len(name)] == wanted:
            return places.start + further
    return None


def tags(request: range, copies: Sequence[Copy]) -> Iterator[tuple[int, int]]:
    """The role of each token of a request in a value."""
    begins = {copy.begin for copy in copies}
    further = {place for copy in copies for place in range(copy.begin + 1, copy.end)}
    for place in request:
        yield place, BEGINS if place in begins else CONTINUES if place in further else NOTHING


def _values(tokens: Sequence[int], begun: int, end: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """The values of a call between these places.

    For each: its parameter's name, where the name is about to be written, and where the value is.
    """
    (colon,), (closes,) = tokens_of(":"), tokens_of('"')
    for place in range(begun + 2, end):
        # A value may contain a colon and a space too, but never after a quote: that would be escaped.
        if tokens[place - 2] == closes and tokens[place - 1] == colon and tokens[place] in _opening():
            naming = next(at for at in range(place - 3, begun, -1) if tokens[at] in _naming())
            yield tuple(tokens[naming + 1 : place - 2]), naming, place


@cache
def _naming() -> frozenset[int]:
    return frozenset(token for mark in ('{"', ' "') for token in tokens_of(mark))


@cache
def _opening() -> frozenset[int]:
    return frozenset(token for mark in (' "', " ") for token in tokens_of(mark))
