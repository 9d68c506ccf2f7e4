"""Other names for the stock's tools, so that the model must read a tool's name in its declaration.

With the stock's names alone, "oven" soon means "set", since the oven's names begin so, and the model takes
any tool with such a name. So in training the verb is often a synonym, or the name has a prefix, as clients
add it to group their tools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from random import Random

from recipe.text import stock
from recipe.text.words import Words

RENAMED = 0.5  # of the stock's tools
_PREFIXED = 0.2  # of those


@cache
def general_words() -> frozenset[str]:
    """Words of many names, which say little about a tool's purpose."""
    return frozenset(stock.lines("general.txt"))


def renamed(rng: Random, words: Words, names: Sequence[str]) -> str:
    """One of a tool's `names`, or a variant of it."""
    parts = words_of(rng.choice(names))
    alike = [line.split() for line in stock.lines("verbs_alike.txt")]
    verbs = next((line for line in alike if any(words_of(name)[0] in line for name in names)), None)
    if verbs is not None:
        thing = parts[1:] if any(parts[0] in line for line in alike) else parts
        if any(len(word) > 3 and word not in general_words() for word in thing):
            verb = rng.choice(verbs).split("_")
            parts = [*thing, *verb] if rng.random() < 0.15 else [*verb, *thing]
    if rng.random() < _PREFIXED:
        parts = [words.common(), *parts]
    if rng.random() < 0.25:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "_".join(parts)


def words_in(text: str) -> list[str]:
    """Its words, in lower case."""
    return re.findall(r"[a-z0-9]+", text.lower())


def taken_apart(name: str) -> str:
    """`name` with its words separated: "set Timer" for "setTimer"."""
    return re.sub(r"([A-Z])", r" \1", name)


def words_of(name: str) -> list[str]:
    """The words of a name: "set", "timer" for "setTimer"."""
    return words_in(taken_apart(name))
