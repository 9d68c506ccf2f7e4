"""The Harmony vocabulary for the recipe: bytes of tokens, pieces of words, features of spelling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from openai_harmony import (  # type: ignore[import-untyped, unused-ignore]
    HarmonyEncoding,
    HarmonyEncodingName,
    load_harmony_encoding,
)

from inference.tiny.codes import SLOTS, VOCABULARY, Floats, Ints, TokenTable
from recipe.text.meanings import COMPARED, meanings

ORDINARY_TOKENS = 199_998
SPACE = 220


@cache
def encoding() -> HarmonyEncoding:
    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


@cache
def token_bytes() -> tuple[bytes, ...]:
    inner = encoding()._inner
    return tuple(bytes(inner.decode_bytes([token])) for token in range(ORDINARY_TOKENS))


def ordinary_bytes(token: int) -> bytes:
    """The bytes of `token`; none for a special one."""
    return token_bytes()[token] if token < ORDINARY_TOKENS else b""


@cache
def ids_by_bytes() -> dict[bytes, int]:
    return {text: token for token, text in enumerate(token_bytes())}


def encode(text: str) -> list[int]:
    # If no special token is disallowed, the library does not search for them, which is ten times faster.
    return list(encoding().encode(text, disallowed_special=()))


@cache
def pieces_of(word: bytes, most: int = SLOTS) -> tuple[int, ...] | None:
    """The fewest tokens that spell `word`, split near the middle if two; None if more than `most`."""
    known = ids_by_bytes()
    if word in known:
        return (known[word],)
    if most < 2:
        return None
    middle = (len(word) + 1) / 2
    for cut in sorted(range(1, len(word)), key=lambda place: abs(place - middle)):
        if word[:cut] in known and word[cut:] in known:
            return known[word[:cut]], known[word[cut:]]
    for cut in range(len(word) - 1, 0, -1):
        if word[:cut] in known and (rest := pieces_of(word[cut:], most - 1)) is not None:
            return known[word[:cut]], *rest
    return None


@cache
def without_space(token: int) -> tuple[int, ...]:
    """The tokens that replace `token` where no space may precede it."""
    text = ordinary_bytes(token)
    if not text.startswith(b" ") or text == b" ":
        return () if text == b" " else (token,)
    pieces = pieces_of(text[1:])
    return pieces if pieces is not None else tuple(encode(text[1:].decode("utf-8", "replace")))


SPACE_LEADS = 1  # the place of this test among the features


def _features(token: int) -> int:
    if token >= ORDINARY_TOKENS:
        return 1
    raw = token_bytes()[token]
    text = raw.decode("utf-8", "replace")
    word = text[1:] if text.startswith(" ") else text
    pieces = len(without_space(token))
    tests = (
        False,  # special
        text.startswith(" "),
        word[:1].isupper(),
        word[:1].islower(),
        len(word) > 1 and word.isupper(),
        word.isalpha(),
        word.isascii(),
        word.isdigit(),
        any(c.isdigit() for c in word),
        "\n" in word,
        not any(c.isalnum() for c in word),
        word[:1] in "_-./\\@:",
        word.endswith('"'),
        word.startswith('"'),
        pieces == 1,
        pieces == 2,
        pieces == 3,
        pieces > 3,
        len(word) <= 2,
        len(word) >= 6,
    )
    return sum(1 << place for place, holds in enumerate(tests) if holds)


def _joined_word(token: int) -> int | None:
    """The token of the word that `token` adds to a name: "weather" for "_weather"."""
    text = token_bytes()[token]
    return ids_by_bytes().get(text[1:]) if text.startswith(b"_") and text[1:].isalpha() else None


_EDGE = 3  # letters


def _edges_of(token: int) -> tuple[str, str] | None:
    """The first and last letters of a word, or of a part of a name; None if it is too short."""
    word = token_bytes()[token].decode("utf-8", "replace").lstrip(" _").lower()
    return (word[:_EDGE], word[-_EDGE:]) if word.isascii() and word.isalpha() and len(word) >= _EDGE else None


def _edges() -> Ints:
    """For every token the numbers of its edges, in order of appearance."""
    found = np.full((VOCABULARY, 2), -1, dtype=np.int32)
    numbers: dict[str, int] = {}
    for token in range(ORDINARY_TOKENS):
        if (edges := _edges_of(token)) is not None:
            found[token] = [numbers.setdefault(edge, len(numbers)) for edge in edges]
    return found


def word_of(token: int) -> str | None:
    """The word, or part of a name, that `token` spells, in lower case; None if it is no word."""
    text = token_bytes()[token].decode("utf-8", "replace").removeprefix(" ").removeprefix("_").lower()
    return text if len(text) > 1 and text.isascii() and text.isalpha() else None


def _meanings() -> Ints:
    """For every token the place of its word's vector."""
    found, known = np.full(VOCABULARY, -1, dtype=np.int32), meanings()[0]
    for token in range(ORDINARY_TOKENS):
        found[token] = known.get(word_of(token) or "", -1)
    return found


@cache
def token_table() -> TokenTable:
    """A part of a name has the piece of its word, so that tool names match the words of requests."""
    pieces = np.full((VOCABULARY, SLOTS), -1, dtype=np.int32)
    pieces[:, 0] = np.arange(VOCABULARY)
    for token in range(ORDINARY_TOKENS):
        split = without_space(token)[:SLOTS] or (token,)
        pieces[token, : len(split)] = split
        if (word := _joined_word(token)) is not None:
            pieces[token, 0] = word
    features = np.fromiter(
        (_features(token) for token in range(VOCABULARY)), dtype=np.int32, count=VOCABULARY
    )
    return TokenTable(pieces, features, _edges(), _meanings(), meanings()[1])


def likeness(some: Sequence[int], others: Sequence[int]) -> Floats:
    """The similarity of `some` tokens and `others`: the product of their compared numbers."""

    def numbers(tokens: Sequence[int]) -> Floats:
        table = token_table()
        places = table.meanings[np.asarray(tokens)]
        found: Floats = np.where(places[:, None] < 0, 0, table.vectors[places]).astype(np.float32)
        return found[:, :COMPARED]

    alike: Floats = numbers(some) @ numbers(others).T
    return alike
