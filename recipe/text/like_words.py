"""Words with nearly the same meaning, by GloVe's vectors (`meanings.py`).

No stock has every word that a request may use in place of a declaration's word. These words teach the model
to choose by meaning, not by which words it saw together.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from inference.tiny.codes import Floats
from recipe.text.meanings import meanings
from recipe.text.words import is_held_out

_LIKE = 0.6  # the least cosine of two words that count as alike
_MOST = 4
_SAME_WORD = 4  # letters: words with the same beginning are mostly forms of one word
_LEAST = 3  # letters of a meaningful word


@cache
def like_words(word: str) -> tuple[str, ...]:
    """The most similar words for training, without forms of the word itself; none for an unknown word."""
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
