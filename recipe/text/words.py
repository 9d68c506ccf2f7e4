"""Values that the model has never seen: words from the whole vocabulary, names, files, numbers, dates.

Some are natural (stock/values.json), most consist of random words, which teach copying. A hash assigns every
word, and every value of the stock, to training or to the held-out part, so that training never sees a
held-out value.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from inference.tiny.codes import SLOTS
from recipe.text import stock
from recipe.text.vocabulary import ids_by_bytes, token_bytes, without_space

Item = TypeVar("Item")
_ONSETS = [
    "b",
    "br",
    "c",
    "ch",
    "d",
    "dr",
    "f",
    "fl",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "kl",
    "l",
    "m",
    "n",
    "p",
    "pr",
    "qu",
    "r",
    "s",
    "sh",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "y",
    "z",
]
_NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "oa", "ou", "y", "ia"]
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "x", "nd", "rk", "m", "ck", "th"]
_EXTENSIONS = [
    "txt",
    "pdf",
    "md",
    "py",
    "json",
    "csv",
    "png",
    "jpg",
    "log",
    "yaml",
    "html",
    "docx",
    "xlsx",
    "zip",
    "toml",
    "ts",
    "rs",
    "cfg",
]
_TYPED = "values_typed.json"
_MORE = tuple(sorted(file.name for file in stock.FOLDER.glob("values_more_*.json")))  # only for training
_SMALL = ("and", "of", "the", "a", "or", "my", "in the", "is")
_NATURAL_SHARE = 0.4
_TYPED_SHARE = 0.8  # of values of a specific kind, such as a cuisine or a currency
_THREE_PIECES = 0.08  # of the words for training, in addition to those that occur by chance
_DAYS = ["today", "tomorrow", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def is_held_out(word: str) -> bool:
    return zlib.crc32(word.strip().lower().encode()) % 8 == 0


@cache
def natural_values(kind: str, held_out: bool) -> tuple[str, ...]:
    """The stock's values of this kind."""
    files = (_TYPED, *(() if held_out else _MORE)) if kind in typed_kinds() else ("values.json",)
    values = (value for file in files for value in stock.parsed(file).get(kind, ()))
    return tuple(value for value in values if is_held_out(value) == held_out)


@cache
def typed_kinds() -> dict[str, str]:
    """The specific kinds, and the form of their random values."""
    parts = (line.split(" = ") for line in stock.lines("kinds.txt"))
    return {kind: form for kind, form, *_ in parts}


@cache
def _natural() -> frozenset[str]:
    files = (stock.parsed(name) for name in ("values.json", _TYPED, *_MORE))
    return frozenset(value for kinds in files for values in kinds.values() for value in values)


def is_natural(value: str) -> bool:
    """Whether the stock has it, for either part: the model may have seen its words elsewhere."""
    return value in _natural()


@cache
def _pool(pattern: str, held_out: bool) -> tuple[str, ...]:
    match = re.compile(pattern).fullmatch
    texts = (raw.decode("utf-8", "ignore") for raw in token_bytes())
    words = (text[1:] for text in texts if match(text) and is_held_out(text) == held_out)
    return tuple(word for word in words if word.lower() not in stock.lines("joints.txt"))


@cache
def _in_three(pattern: str) -> tuple[str, ...]:
    """Words for training that are one token after a space, and three without it."""
    known = ids_by_bytes()
    return tuple(
        word
        for word in _pool(pattern, False)
        if (token := known.get(f" {word}".encode())) is not None and len(without_space(token)) == SLOTS
    )


@cache
def _usual(held_out: bool) -> tuple[str, ...]:
    """The words in the names and descriptions of the stock's tools and in the fields."""
    texts = [*stock.lines("parameters.txt"), *stock.lines("fields.txt")]
    for file in stock.TOOLS:
        for entry in stock.parsed(file):
            texts += [*entry["names"], *entry["about"], *entry["params"]]
    found = {word for text in texts for word in re.findall(r"[a-z]{3,12}", text)}
    known = ids_by_bytes()
    kept = (
        word for word in sorted(found.difference(stock.lines("joints.txt"))) if f" {word}".encode() in known
    )
    return tuple(word for word in kept if is_held_out(word) == held_out)


def choose(rng: Random, options: Sequence[Item], held_out: bool, kept_back: int | None = None) -> Item:
    """One of the phrasings. Of four or more, the last sixth (at most `kept_back`) is the held-out part."""
    if len(options) >= 4:
        sixth = max(1, len(options) // 6)
        last = sixth if kept_back is None else min(kept_back, sixth)
        options = options[-last:] if held_out else options[:-last]
    return options[rng.randrange(len(options))]


class Words:
    """Draws values by kind.

    `plain` requests have no feature that only training has, such as unusual forms. Held-out cases are plain,
    so that they stay those by which earlier models were scored.
    """

    def __init__(self, rng: Random, held_out: bool, plain: bool = False) -> None:
        self._rng = rng
        self.held_out = held_out
        self.plain = held_out or plain
        self._kinds: dict[str, Callable[[], str]] = {
            "city": self.place,
            "person": self.person,
            "name": self.capital,
            "word": self.lower,
            "split": self.split,
            "query": self.query,
            "title": self.title,
            "sentence": self.sentence,
            "file": self.file,
            "path": self.path,
            "email": self.email,
            "date": self.date,
            "time": self.time,
            "int": self.integer,
            "small": lambda: str(rng.randrange(1, 100)),
            "float": self.decimal,
            "id": self.identifier,
        }

    def draw(self, kind: str) -> str:
        form = typed_kinds().get(kind)
        share = _TYPED_SHARE if form else _NATURAL_SHARE
        if self._rng.random() < share and (usual := natural_values(kind, self.held_out)):
            return usual[self._rng.randrange(len(usual))]
        return self._kinds[form or kind]()

    def common(self) -> str:
        """A word for a programmer's name: mostly one of the stock's, in a new combination."""
        if self._rng.random() < 0.85:
            return self._rng.choice(_usual(self.held_out))
        return self._from(r" [a-z]{3,12}")

    def _from(self, pattern: str) -> str:
        pool = _pool(pattern, self.held_out)  # by token id: frequent words come first
        # Held-out cases stay those by which earlier models were scored.
        if not self.held_out and self._rng.random() < _THREE_PIECES and (split := _in_three(pattern)):
            return split[self._rng.randrange(len(split))]
        if self._rng.random() < 0.5:
            return pool[self._rng.randrange(len(pool) // 12 + 1)]
        return pool[int(len(pool) * self._rng.random() ** 2)]

    def invented(self) -> str:
        """A word of random syllables."""
        rng = self._rng
        while True:
            syllables = rng.choice((2, 2, 3))
            word = "".join(
                rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS) for _ in range(syllables)
            )
            if is_held_out(word) == self.held_out:
                return word

    def capital(self) -> str:
        roll = self._rng.random()
        if roll < 0.2:
            return self.invented().capitalize()
        if roll < 0.23:
            return self._from(r" [A-Z]{3,5}")
        if roll < 0.26:
            return self._from(r" [A-ZÀ-Þ][a-zà-ÿ]{2,9}")
        return self._from(r" [A-Z][a-z]{2,12}")

    def lower(self) -> str:
        roll = self._rng.random()
        if roll < 0.12:
            return self.invented()
        if roll < 0.14:
            return self._from(r" [a-zà-ÿ]{3,10}")
        return self._from(r" [a-z]{3,12}")

    def split(self) -> str:
        """A word that is one token after a space and several without it."""
        while True:
            word = self.lower() if self._rng.random() < 0.6 else self.capital()
            token = ids_by_bytes().get(f" {word}".encode())
            if token is not None and len(without_space(token)) > 1:
                return word

    def place(self) -> str:
        roll = self._rng.random()
        if roll < 0.72:
            return self.capital()
        if roll < 0.88:
            return f"{self.capital()} {self.capital()}"
        return f"{self.capital()}, {self.capital()}"

    def person(self) -> str:
        return self.capital() if self._rng.random() < 0.6 else f"{self.capital()} {self.capital()}"

    def query(self) -> str:
        return self._joined([self.lower() for _ in range(self._rng.choice((1, 1, 2, 2, 3, 4)))])

    def _joined(self, words: list[str]) -> str:
        """Joins the words, sometimes with a small word between two, as in "milk and eggs"."""
        if len(words) > 1 and self._rng.random() < 0.25:
            words.insert(self._rng.randrange(1, len(words)), self._rng.choice(_SMALL))
        return " ".join(words)

    def title(self) -> str:
        count = self._rng.choice((1, 2, 2, 3, 4))
        words = [self.lower() if self._rng.random() < 0.6 else self.capital() for _ in range(count)]
        words[0] = self.capital()
        return self._joined(words)

    def sentence(self) -> str:
        words = [self.lower() for _ in range(self._rng.choice((2, 3, 3, 4, 5, 7)))]
        if self._rng.random() < 0.6:
            words[0] = self.capital()
        return self._joined(words)

    def file(self) -> str:
        rng = self._rng
        stem = self.lower()
        if rng.random() < 0.4:
            stem += rng.choice("_-") + rng.choice((self.lower, self.integer))()
        return f"{stem}.{rng.choice(_EXTENSIONS)}"

    def path(self) -> str:
        folders = [self.lower() for _ in range(self._rng.choice((1, 1, 2)))]
        return ("/" if self._rng.random() < 0.3 else "") + "/".join([*folders, self.file()])

    def email(self) -> str:
        stem = self.lower() + (f".{self.lower()}" if self._rng.random() < 0.3 else "")
        host = "example" if self._rng.random() < 0.6 else self.lower()
        return f"{stem}@{host}.{self._rng.choice(('com', 'org', 'net', 'io'))}"

    def date(self) -> str:
        rng = self._rng
        if rng.random() < 0.5:
            return rng.choice(_DAYS)
        return f"20{rng.randrange(24, 32)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"

    def time(self) -> str:
        rng = self._rng
        if rng.random() < 0.3:
            return f"{rng.randrange(1, 13)}{rng.choice(('am', 'pm', ' am', ' pm'))}"
        return f"{rng.randrange(0, 24):02}:{rng.randrange(0, 60, 5):02}"

    def integer(self) -> str:
        return str(self._rng.randrange(0, 10 ** self._rng.choice((1, 2, 2, 3, 4, 5))))

    def decimal(self) -> str:
        rng = self._rng
        if rng.random() < 0.4:
            return self.integer()
        return (
            f"{rng.randrange(0, 10 ** rng.choice((1, 2, 3)))}.{rng.randrange(1, 10)}{rng.choice(('', '5'))}"
        )

    def identifier(self) -> str:
        rng = self._rng
        letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.choice((1, 2, 3))))
        return f"{letters}{rng.choice(('-', '', '_'))}{rng.randrange(10, 10 ** rng.choice((2, 3, 5)))}"
