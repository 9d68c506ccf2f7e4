"""Finds in the tokens of a batch the places that hints apply to (`hints.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt

from inference.tiny.codes import VOCABULARY, Longs
from recipe.functions.copies import called_before, copies_of, held, looks, tags
from recipe.functions.restating import LEADS
from recipe.functions.tool_names import general_words
from recipe.text.talk import END, GOES_ON, MESSAGE, PAST, START, Talk, Turn, tokens_of
from recipe.text.vocabulary import ORDINARY_TOKENS, likeness, ordinary_bytes, token_table

_LONGEST, _LONGEST_LINE = 14, 60  # tokens of a name, and of a function's purpose
_UNLIKE, _ALIKE = 105.0, 145.0  # similarities of words: heads begin to match between them (tune_meanings.py)


@dataclass(frozen=True, slots=True)
class Marks:
    """Places in a batch: rows, columns, and the goal of each."""

    carried: Longs  # x 3: row, column, the first token of the name
    held: Longs  # x 3: row, column, the first token of the value
    tagged: Longs  # x 3: row, column, its role in a value
    looked: Longs  # x 3: row, column, the column where the next text begins
    matched: Longs  # x 3: row, column, the column of the similar word in the request, -1: none
    identified: Longs  # x 3: row, column, the token there


def declared_names(tokens: Sequence[int]) -> dict[tuple[int, ...], int]:
    """The names after `type`, in their tokens, and where each begins."""
    found: dict[tuple[int, ...], int] = {}
    (keyword,) = tokens_of("type")
    for place in range(2, len(tokens)):
        if tokens[place - 1] == keyword and ordinary_bytes(tokens[place - 2]).endswith(b"\n"):
            texts = [ordinary_bytes(token) for token in tokens[place : place + _LONGEST]]
            end = next((at for at, text in enumerate(texts) if text.startswith(b" =")), 0)
            # Without that space it is a parameter of this name.
            if end and texts[0].startswith(b" "):
                found[tuple(tokens[place : place + end])] = place
    return found


def _purpose(tokens: Sequence[int], name: int) -> range:
    """The line with the purpose of the function whose declared name begins at `name`."""
    end = name - 2  # "type" and the line's end
    for begin in range(end, max(0, end - _LONGEST_LINE), -1):
        text = ordinary_bytes(tokens[begin - 1])
        if text.endswith(b"//"):
            words = [at for at in range(begin, end) if ordinary_bytes(tokens[at]).strip(b" .\n")]
            return range(begin, words[-1] + 1) if words else range(0)
        if b"\n" in text:
            break
    return range(0)


def _weighed(talk: Talk, names: dict[tuple[int, ...], int], turn: Turn) -> Iterator[tuple[range, range, int]]:
    """Where this turn considers whether a function fits: its purpose, its name, and its declaration."""
    tokens, mark, leads = talk.tokens, tokens_of("?")[0], tokens_of(LEADS)[0]
    # After it the request is restated, and may end with "service?" if a function has that name.
    stop = next((at for at in range(turn.start, turn.end) if tokens[at] == leads), turn.end)
    for begin in range(turn.start, stop):
        for name, declared in names.items():
            end = begin + len(name)
            if tuple(tokens[begin:end]) == name and tokens[end] == mark:
                line = _purpose(tokens, declared)
                copy = range(begin - 1 - len(line), begin - 1)  # and a colon
                same = tokens[copy.start : copy.stop] == tokens[line.start : line.stop]
                yield copy if same else range(0), range(begin, end), declared


def _namings(talk: Talk, names: dict[tuple[int, ...], int]) -> Iterator[tuple[int, int]]:
    """Where a thought is about to decide for a function, or to name it; and where that name is declared.

    Also where it is about to consider a function, and to state its purpose.
    """
    tokens, before = talk.tokens, list(tokens_of(", so"))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        for place in range(turn.start + len(before), turn.end):
            if tokens[place - len(before) : place] != before:
                continue
            for name, begin in names.items():
                if tuple(tokens[place : place + len(name)]) == name:
                    yield from ((place - len(before), begin), (place - 1, begin))
        for line, named, declared in _weighed(talk, names, turn):
            yield named.start - 1, declared
            if line:
                yield line.start - 1, _purpose(tokens, declared).start


def _matches(
    talk: Talk, names: dict[tuple[int, ...], int], requests: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Words of the functions that a thought considers, and similar words of the request; -1 for none.

    Slightly similar words get no mark.
    """
    tokens = talk.tokens
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        request = [at for at in requests if at < turn.start]
        weighed = [(*line, *name) for line, name, _ in _weighed(talk, names, turn)]
        places = [at for one in weighed for at in one if _is_specific(tokens[at])]
        if not request or not places:
            continue
        body = range(tokens.index(MESSAGE, request[-1]), tokens.index(END, request[-1]))
        spellings = {word: at for at in body for word in _spellings(tokens[at])}
        specific = np.array([_is_specific(tokens[at]) for at in body])
        alike = likeness([tokens[at] for at in places], tokens[body.start : body.stop]) * specific
        for place, best, like in zip(places, alike.argmax(1).tolist(), alike.max(1).tolist(), strict=True):
            same = (spellings[word] for word in _spellings(tokens[place]) if word in spellings)
            spelt = next(same, None)
            if spelt is not None:
                yield place, spelt
            elif not _UNLIKE < like < _ALIKE:
                yield place, body[best] if like >= _ALIKE else -1


def _continuations(talk: Talk, requests: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where a thought continues the last call, and the place in that call that it is about to copy."""
    tokens, begins = talk.tokens, list(tokens_of(GOES_ON))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        place = tokens.index(MESSAGE, turn.start) + 1 + len(begins)
        if tokens[place - len(begins) : place] == begins:
            last = called_before(tokens, max(at for at in requests if at < turn.start))
            for further in range(2):  # the dot, and the name; or both in one token, and the next
                yield place - 1 + further, last.start + further


def _spellings(token: int) -> tuple[tuple[int, ...], ...]:
    """The keys of a word: its first piece, and its first and last letters."""
    table = token_table()
    edges = tuple(table.edges[token].tolist())
    return ((int(table.pieces[token, 0]),), *((edges,) if edges[0] >= 0 else ()))


@cache
def _is_specific(token: int) -> bool:
    """Whether it is a word, or a part of one, that says something about a function's purpose."""
    word = ordinary_bytes(token).decode("utf-8", "replace").strip(" _").lower()
    return len(word) > 2 and word.isalpha() and word not in general_words()


def requests_in(tokens: Sequence[int]) -> list[int]:
    """The beginnings of the user's messages."""
    user = [START, *tokens_of("user")]
    return [at for at, token in enumerate(tokens) if token == START and tokens[at : at + 2] == user]


def _results(tokens: Sequence[int]) -> Iterator[range]:
    """The results of tools."""
    others = {tokens_of(role)[0] for role in ("system", "developer", "user", "assistant")}
    for at in (at for at, token in enumerate(tokens[:-1]) if token == START and tokens[at + 1] not in others):
        yield range(tokens.index(MESSAGE, at), tokens.index(END, at))


def _strange(talk: Talk, begins: int, learned: Longs) -> Iterator[int]:
    """Places in the model's input, from `begins` on, whose words have no learned rows."""
    own = {place for turn in talk.turns for place in range(turn.start, turn.end)}
    for place in np.flatnonzero(~np.isin(talk.tokens, learned)).tolist():
        if place > begins and place not in own:
            yield place


def _repeated(talk: Talk) -> Iterator[int]:
    """Places of the words in tool results that are repeated after them."""
    tokens, pieces = np.array(talk.tokens), token_table().pieces[talk.tokens, 0]
    for result in _results(talk.tokens):
        end = next((turn.end for turn in talk.turns if turn.start > result.stop), result.stop)
        repeated = np.isin(pieces[result.start : result.stop], pieces[result.stop : end])
        words = _is_word()[tokens[result.start : result.stop]]
        yield from (result.start + np.flatnonzero(repeated & words)).tolist()


@cache
def _is_word() -> npt.NDArray[np.bool_]:
    """For every token, whether it begins with a letter, after an optional space."""
    texts = (ordinary_bytes(token).decode("utf-8", "replace") for token in range(ORDINARY_TOKENS))
    found = np.zeros(VOCABULARY, np.bool_)
    found[:ORDINARY_TOKENS] = [text.lstrip(" _")[:1].isalpha() for text in texts]
    return found


def marks_of(talks: Sequence[Talk], learned: Longs) -> Marks:
    """The marks of a batch; `learned` are the tokens with learned rows."""
    found: dict[str, list[tuple[int, int, int]]] = {field.name: [] for field in fields(Marks)}
    for row, talk in enumerate(talks):
        names = declared_names(talk.tokens)
        for name, begin in names.items():
            found["carried"] += [(row, begin + further, name[0]) for further in range(1, len(name))]
        if len(names) > 1:
            found["looked"] += [(row, place, begin) for place, begin in _namings(talk, names)]
        requests = requests_in(talk.tokens)
        found["looked"] += [(row, place, begin) for place, begin in _continuations(talk, requests)]
        found["matched"] += [(row, place, begin) for place, begin in _matches(talk, names, requests)]
        identified = {*_strange(talk, requests[0], learned), *_repeated(talk)}
        for request, copies in copies_of(talk, requests):
            found["looked"] += [(row, *look) for look in looks(talk, copies, names)]
            for copy in copies:
                identified.update(range(copy.begin, copy.end))
                identified.update(range(copy.restated, copy.restated + copy.end - copy.begin))
            found["held"] += [(row, place, first) for place, first in held(talk, copies)]
            found["tagged"] += [(row, place, tag) for place, tag in tags(request, copies)]
        found["identified"] += [(row, place, talk.tokens[place]) for place in sorted(identified)]
    return Marks(**{name: np.array(marks, np.int64).reshape(-1, 3) for name, marks in found.items()})
