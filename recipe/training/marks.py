"""Where in a batch training asks for something in between (`hints.py`), found again in the tokens."""

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

_LONGEST, _LONGEST_LINE = 14, 60  # tokens of a name, and of what a function is for
_UNLIKE, _ALIKE = 105.0, 145.0  # of words' meanings: the look at one begins between them (tune_meanings.py)


@dataclass(frozen=True, slots=True)
class Marks:
    """Places in a batch: rows, columns, and what is asked of each."""

    carried: Longs  # x 3: row, column, the first token of the name
    held: Longs  # x 3: row, column, the first token of the value
    tagged: Longs  # x 3: row, column, what it is to a value
    looked: Longs  # x 3: row, column, the column where what comes next begins
    matched: Longs  # x 3: row, column, the column of the word in the request that is like it, -1: none is
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


def _purpose(tokens: Sequence[int], name: int) -> range:
    """Where the line stands that tells what the function is for whose declared name begins at `name`."""
    end = name - 2  # "type" and the line's end
    for begin in range(end, max(0, end - _LONGEST_LINE), -1):
        text = ordinary_bytes(tokens[begin - 1])
        if text.endswith(b"//"):
            words = [at for at in range(begin, end) if ordinary_bytes(tokens[at]).strip(b" .\n")]
            return range(begin, words[-1] + 1) if words else range(0)
        if b"\n" in text:
            break
    return range(0)


def _asked(talk: Talk, names: dict[tuple[int, ...], int], turn: Turn) -> Iterator[tuple[range, range, int]]:
    """Where this turn asks of a function whether it fits: its purpose, its name, where that is declared."""
    tokens, mark, leads = talk.tokens, tokens_of("?")[0], tokens_of(LEADS)[0]
    # Behind it the request is said again, and may end with "service?" where a function is called so.
    stop = next((at for at in range(turn.start, turn.end) if tokens[at] == leads), turn.end)
    for begin in range(turn.start, stop):
        for name, declared in names.items():
            end = begin + len(name)
            if tuple(tokens[begin:end]) == name and tokens[end] == mark:
                line = _purpose(tokens, declared)
                said = range(begin - 1 - len(line), begin - 1)  # and a colon
                same = tokens[said.start : said.stop] == tokens[line.start : line.stop]
                yield said if same else range(0), range(begin, end), declared


def _namings(talk: Talk, names: dict[tuple[int, ...], int]) -> Iterator[tuple[int, int]]:
    """Where a thought comes to say that a function fits, and to name it; and where that name is declared.

    And where it comes to ask of one whether it fits, and to say what it is for.
    """
    tokens, before = talk.tokens, list(tokens_of(", so"))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        for said in range(turn.start + len(before), turn.end):
            if tokens[said - len(before) : said] != before:
                continue
            for name, begin in names.items():
                if tuple(tokens[said : said + len(name)]) == name:
                    yield from ((said - len(before), begin), (said - 1, begin))
        for line, name_said, declared in _asked(talk, names, turn):
            yield name_said.start - 1, declared
            if line:
                yield line.start - 1, _purpose(tokens, declared).start


def _matches(
    talk: Talk, names: dict[tuple[int, ...], int], requests: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Words of what a thought asks of, and where the request says something like them: -1 for nowhere.

    Words that are a little alike are left to training.
    """
    tokens = talk.tokens
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        request = [at for at in requests if at < turn.start]
        asked = [(*line, *name) for line, name, _ in _asked(talk, names, turn)]
        places = [at for one in asked for at in one if _tells(tokens[at])]
        if not request or not places:
            continue
        body = range(tokens.index(MESSAGE, request[-1]), tokens.index(END, request[-1]))
        said = {word: at for at in body for word in _spellings(tokens[at])}
        telling = np.array([_tells(tokens[at]) for at in body])
        alike = likeness([tokens[at] for at in places], tokens[body.start : body.stop]) * telling
        for place, best, like in zip(places, alike.argmax(1).tolist(), alike.max(1).tolist(), strict=True):
            spelt = next((said[word] for word in _spellings(tokens[place]) if word in said), None)
            if spelt is not None:
                yield place, spelt
            elif not _UNLIKE < like < _ALIKE:
                yield place, body[best] if like >= _ALIKE else -1


def _goings_on(talk: Talk, requests: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where a thought takes up the last call, and where in that call stands what it is about to say."""
    tokens, begins = talk.tokens, list(tokens_of(GOES_ON))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        said = tokens.index(MESSAGE, turn.start) + 1 + len(begins)
        if tokens[said - len(begins) : said] == begins:
            last = called_before(tokens, max(at for at in requests if at < turn.start))
            for further in range(2):  # the dot, and the name; or both in one, and what comes then
                yield said - 1 + further, last.start + further


def _spellings(token: int) -> tuple[tuple[int, ...], ...]:
    """By which a word is found again: its first piece, its first and last letters."""
    table = token_table()
    edges = tuple(table.edges[token].tolist())
    return ((int(table.pieces[token, 0]),), *((edges,) if edges[0] >= 0 else ()))


@cache
def _tells(token: int) -> bool:
    """Whether it is a word, or a part of one, that tells what a function is for."""
    word = ordinary_bytes(token).decode("utf-8", "replace").strip(" _").lower()
    return len(word) > 2 and word.isalpha() and word not in general_words()


def requests_in(tokens: Sequence[int]) -> list[int]:
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
        requests = requests_in(talk.tokens)
        found["looked"] += [(row, place, begin) for place, begin in _goings_on(talk, requests)]
        found["matched"] += [(row, place, begin) for place, begin in _matches(talk, names, requests)]
        told = {*_strange(talk, requests[0], learned), *_said_again(talk)}
        for request, copies in copies_of(talk, requests):
            found["looked"] += [(row, *look) for look in looks(talk, copies, names)]
            for copy in copies:
                told.update(range(copy.begin, copy.end))
                told.update(range(copy.said, copy.said + copy.end - copy.begin))
            found["held"] += [(row, place, first) for place, first in held(talk, copies)]
            found["tagged"] += [(row, place, tag) for place, tag in tags(request, copies)]
        found["told"] += [(row, place, talk.tokens[place]) for place in sorted(told)]
    return Marks(**{name: np.array(marks, np.int64).reshape(-1, 3) for name, marks in found.items()})
