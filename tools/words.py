"""The words by which texts are found, in many languages. Pure.

Words are lower case, without accents and, where they look English, without the ending of a plural. Of scripts
that are written without spaces, each pair of characters is a word.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import regex  # type: ignore[import-untyped]

_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]"
_WORD = regex.compile(rf"(?P<unspaced>(?:{_UNSPACED}\p{{M}}*)+)|(?:(?!{_UNSPACED})[\p{{L}}\p{{M}}\p{{N}}])+")
_RUN, _ASCII_RUN = regex.compile(r"[\p{L}\p{M}\p{N}]+"), re.compile(r"[a-z0-9]+")
_ACCENTS = regex.compile("[\u0300-\u036f]")
_PLURAL = regex.compile(r"[a-z]{3,}s")
_LONGEST = 64  # characters of a word; longer ones are data
_MOST_IN_QUERY = 32
_MOST_KNOWN = 65_536  # words whose singular is remembered
_COMMON = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "has", "have", "how",
    "i", "in", "is", "it", "its", "of", "on", "or", "that", "the", "there", "this", "to", "was", "what",
    "when", "where", "which", "who", "why", "will", "with", "you", "your",
})  # fmt: skip


def words_in(text: str) -> Iterator[str]:
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
    folded = text.casefold()
    for run in (_ASCII_RUN if folded.isascii() else _RUN).findall(folded):
        if run.isascii():
            if len(run) <= _LONGEST:
                yield _singular(run)
            continue
        for found in _WORD.finditer(run):
            word = found[0]
            if found["unspaced"] is not None:
                yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
            elif len(word) <= _LONGEST:
                yield word


def words_of_query(text: str) -> list[str]:
    """Each word once; those that most texts have only where the query has no others."""
    found = list(dict.fromkeys(words_in(text)))
    return ([word for word in found if word not in _COMMON] or found)[:_MOST_IN_QUERY]


@lru_cache(_MOST_KNOWN)
def _singular(word: str) -> str:
    if word[-1] != "s" or not _PLURAL.fullmatch(word) or word.endswith(("ss", "us", "is", "as")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]
