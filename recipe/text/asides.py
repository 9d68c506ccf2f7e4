"""Words around a request that are part of no value: "Hey, ...", "... for me, thanks"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from recipe.text import stock

_SHARE = 0.12  # of the wordings in training have an aside
_OPEN_ENDED = ("query", "title", "sentence")  # kinds of values that may end in any words
_LAST_GAP = re.compile(r"\{(\d+)\}\??$")
_GREAT = ("I", "I'm", "I'd", "I've", "I'll")


def with_an_aside(rng: Random, kinds: Sequence[str], ask: str) -> str:
    """`ask`, sometimes with an aside before or after it; `kinds` are those of the values in its gaps."""
    if rng.random() >= _SHARE or not ask[0].isalpha():
        return ask
    aside = rng.choice(stock.lines("asides.txt"))
    if not aside.startswith("{ask}"):
        begun = ask if ask.split()[0] in _GREAT else ask[0].lower() + ask[1:]
        return aside.replace("{ask}", begun)
    last = _LAST_GAP.search(ask)
    if last and kinds[int(last.group(1))] in _OPEN_ENDED:
        return ask
    return aside.replace("{ask}", ask.rstrip("?.")) + ("?" if ask.endswith("?") else "")
