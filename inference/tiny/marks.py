"""Where in a batch training asks for something in between (`hints.py`), found again in the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt

from inference.tiny.codes import VOCABULARY, Longs
from inference.tiny.copies import copies_of, held, tags
from inference.tiny.talk import END, MESSAGE, PAST, START, Talk, tokens_of
from inference.tiny.vocabulary import ORDINARY_TOKENS, ordinary_bytes, token_table

_LONGEST = 14  # tokens of a name


@dataclass(frozen=True, slots=True)
class Marks:
    """Places in a batch: rows, columns, and what is asked of each."""

    carried: Longs  # x 3: row, column, the first token of the name
    held: Longs  # x 3: row, column, the first token of the value
    tagged: Longs  # x 3: row, column, what it is to a value
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
    """Where a thought comes to say that a function fits, and to name it; and where that name is declared."""
    tokens, before = talk.tokens, list(tokens_of(", so"))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        for place in range(turn.start, turn.end):
            if tokens[place : place + len(before)] != before:
                continue
            said = place + len(before)
            for name, begin in names.items():
                if tuple(tokens[said : said + len(name)]) == name:
                    yield from ((place, begin), (said - 1, begin))


def _requests(tokens: Sequence[int]) -> list[int]:
    """Where the user's messages begin."""
    user = [START, *tokens_of("user")]
    return [at for at, token in enumerate(tokens) if token == START and tokens[at : at + 2] == user]


def _results(tokens: Sequence[int]) -> Iterator[range]:
    """What tools returned."""
    others = {tokens_of(role)[0] for role in ("system", "developer", "user", "assistant")}
    for at in (at for at, token in enumerate(tokens[:-1]) if token == START and tokens[at + 1] not in others):
        yield range(tokens.index(MESSAGE, at), tokens.index(END, at))


def _strange(talk: Talk, begins: int, learned: Longs) -> Iterator[int]:
    """Places of what was said to the model, from `begins` on, in words that it has no learned rows for."""
    own = {place for turn in talk.turns for place in range(turn.start, turn.end)}
    for place in np.flatnonzero(~np.isin(talk.tokens, learned)).tolist():
        if place > begins and place not in own:
            yield place


def _said_again(talk: Talk) -> Iterator[int]:
    """Places of the words of tools' results that are said again after them."""
    tokens, pieces = np.array(talk.tokens), token_table().pieces[talk.tokens, 0]
    for result in _results(talk.tokens):
        end = next((turn.end for turn in talk.turns if turn.start > result.stop), result.stop)
        again = np.isin(pieces[result.start : result.stop], pieces[result.stop : end])
        words = _is_word()[tokens[result.start : result.stop]]
        yield from (result.start + np.flatnonzero(again & words)).tolist()


@cache
def _is_word() -> npt.NDArray[np.bool_]:
    """Of every token whether it begins with a letter, after a space if there is one."""
    texts = (ordinary_bytes(token).decode("utf-8", "replace") for token in range(ORDINARY_TOKENS))
    found = np.zeros(VOCABULARY, np.bool_)
    found[:ORDINARY_TOKENS] = [text.lstrip(" _")[:1].isalpha() for text in texts]
    return found


def marks_of(talks: Sequence[Talk], learned: Longs) -> Marks:
    """The marks of a batch; `learned` are the tokens with rows of their own."""
    found: dict[str, list[tuple[int, int, int]]] = {field.name: [] for field in fields(Marks)}
    for row, talk in enumerate(talks):
        names = declared_names(talk.tokens)
        for name, begin in names.items():
            found["carried"] += [(row, begin + further, name[0]) for further in range(1, len(name))]
        if len(names) > 1:
            found["looked"] += [(row, place, begin) for place, begin in _namings(talk, names)]
        requests = _requests(talk.tokens)
        told = {*_strange(talk, requests[0], learned), *_said_again(talk)}
        for asked, copies, sure in copies_of(talk, requests):
            found["looked"] += [(row, copy.place, copy.begin) for copy in copies]
            told.update(place for copy in copies for place in range(copy.begin, copy.end))
            found["held"] += [(row, place, first) for place, first in held(talk, copies)]
            if sure:
                found["tagged"] += [(row, place, tag) for place, tag in tags(talk, asked, copies)]
        found["told"] += [(row, place, talk.tokens[place]) for place in sorted(told)]
    return Marks(**{name: np.array(marks, np.int64).reshape(-1, 3) for name, marks in found.items()})
