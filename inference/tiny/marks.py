"""Where in a batch training asks for something in between (`hints.py`), found again in the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from inference.tiny.codes import Longs
from inference.tiny.talk import CALL, CONSTRAIN, PAST, START, Talk, tokens_of
from inference.tiny.vocabulary import ordinary_bytes, token_table, without_space

_LONGEST = 14  # tokens of a name


@dataclass(frozen=True, slots=True)
class Marks:
    """Places in a batch: rows, columns, and what is asked of each."""

    carried: Longs  # x 3: row, column, the first token of the name
    looked: Longs  # x 3: row, column, the column where what comes next begins
    told: Longs  # x 3: row, column, the token there


def declared_names(tokens: Sequence[int]) -> dict[tuple[int, ...], int]:
    """The names behind `type`, in their tokens, and where each begins."""
    found: dict[tuple[int, ...], int] = {}
    (behind,) = tokens_of("type")
    for place in range(2, len(tokens)):
        if tokens[place - 1] == behind and ordinary_bytes(tokens[place - 2]).endswith(b"\n"):
            texts = [ordinary_bytes(token) for token in tokens[place : place + _LONGEST]]
            end = next((at for at, text in enumerate(texts) if text.startswith(b" =")), 0)
            # Without that space it is a parameter that is called so.
            if end and texts[0].startswith(b" "):
                found[tuple(tokens[place : place + end])] = place
    return found


def _namings(talk: Talk, names: dict[tuple[int, ...], int]) -> Iterator[tuple[int, int]]:
    """Where a thought comes to name a function, and where that name is declared."""
    tokens, before = talk.tokens, list(tokens_of(", so"))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        for place in range(turn.start, turn.end):
            if tokens[place : place + len(before)] != before:
                continue
            said = place + len(before)
            for name, begin in names.items():
                if tuple(tokens[said : said + len(name)]) == name:
                    yield said - 1, begin


def _values(tokens: Sequence[int], start: int, end: int) -> Iterator[tuple[int, Sequence[int]]]:
    """The values of a call between these places: where each is about to be written, and its tokens."""
    (colon,) = tokens_of(":")
    for place in range(tokens.index(CONSTRAIN, start, end) + 1, end):
        if tokens[place - 1] == colon and tokens[place] in _opening():
            close = next(at for at in range(place + 1, end) if tokens[at] in _closing())
            yield place, tokens[place + 1 : close]


@cache
def _opening() -> frozenset[int]:
    return frozenset(token for mark in (' "', " ") for token in tokens_of(mark))


@cache
def _closing() -> frozenset[int]:
    return frozenset({CALL}.union(*(tokens_of(mark) for mark in ('"', '",', '"}', ",", "}"))))


def _begins_with(tokens: Sequence[int], value: Sequence[int]) -> bool:
    """Whether `value` stands at the beginning of `tokens`, where a space may lead."""
    return any(
        [*first, *tokens[1 : 1 + len(value) - len(first)]] == value
        for first in ([tokens[0]], list(without_space(tokens[0])))
    )


def _requests(tokens: Sequence[int]) -> list[int]:
    """Where the user's messages begin."""
    user = [START, *tokens_of("user")]
    return [at for at, token in enumerate(tokens) if token == START and tokens[at : at + 2] == user]


def _copies(talk: Talk, requests: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where a call comes to a value, and where that begins in the request, if there at one place alone."""
    tokens = talk.tokens
    pieces = token_table().pieces[tokens, 0]
    for turn in talk.turns:
        if turn.kind == PAST or CONSTRAIN not in tokens[turn.start : turn.end]:
            continue
        asked = max(at for at in requests if at < turn.start)
        for place, value in _values(tokens, turn.start, turn.end):
            alike = asked + np.flatnonzero(pieces[asked : turn.start] == value[0]) if value else ()
            found = [int(at) for at in alike if _begins_with(tokens[at : turn.start], value)]
            if len(found) == 1:
                yield place, found[0]


def _strange(talk: Talk, requests: Sequence[int], learned: Longs) -> Iterator[int]:
    """Places of what was said to the model in words that it has no learned rows for."""
    own = {place for turn in talk.turns for place in range(turn.start, turn.end)}
    for place in np.flatnonzero(~np.isin(talk.tokens, learned)).tolist():
        if place > requests[0] and place not in own:
            yield place


def marks_of(talks: Sequence[Talk], learned: Longs) -> Marks:
    """The marks of a batch; `learned` are the tokens with rows of their own."""
    carried: list[tuple[int, int, int]] = []
    looked: list[tuple[int, int, int]] = []
    told: list[tuple[int, int, int]] = []
    for row, talk in enumerate(talks):
        names = declared_names(talk.tokens)
        for name, begin in names.items():
            carried += [(row, begin + further, name[0]) for further in range(1, len(name))]
        if len(names) > 1:
            looked += [(row, place, begin) for place, begin in _namings(talk, names)]
        requests = _requests(talk.tokens)
        looked += [(row, place, begin) for place, begin in _copies(talk, requests)]
        told += [(row, place, talk.tokens[place]) for place in _strange(talk, requests, learned)]
    return Marks(*(np.array(marks, np.int64).reshape(-1, 3) for marks in (carried, looked, told)))
