"""Words that mean nearly the same as another, as GloVe's vectors tell it (`meanings.py`).

No stock has every word that a request may have for what a declaration calls otherwise. These teach to choose
by what words mean, and not by which of them were seen together.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from inference.tiny.codes import Floats
from recipe.text.meanings import meanings
from recipe.text.words import is_held_out

_LIKE = 0.6  # the cosine from which on two words are alike
_MOST = 4
_SAME_WORD = 4  # letters: what begins alike is mostly another form of the word
_LEAST = 3  # letters of a word that tells anything


@cache
def like_words(word: str) -> tuple[str, ...]:
    """The most like ones that training may have, and no form of the word itself; none, if it is not known."""
    places, _ = meanings()
    place = places.get(word)
    if place is None:
        return ()
    directions = _directions()
    alike = directions @ directions[place]
    found = [_words()[other] for other in np.argsort(-alike)[: 4 * _MOST] if alike[other] >= _LIKE]
    kept = (
        other
        for other in found
        if other[:_SAME_WORD] != word[:_SAME_WORD] and len(other) >= _LEAST and not is_held_out(other)
    )
    return tuple(kept)[:_MOST]


@cache
def _words() -> tuple[str, ...]:
    return tuple(meanings()[0])


@cache
def _directions() -> Floats:
    vectors = meanings()[1].astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions: Floats = vectors / np.maximum(lengths, 1)
    return directions
