"""The meanings of words: GloVe's vectors, made small.

A model of this size, trained on a recipe's texts, cannot learn that a room belongs to a hotel, or that
Utrecht is a city. Vectors from six billion words of text contain it. `meanings.npz` holds, for common words
that are tokens of the vocabulary, their main directions as small whole numbers (make_meanings.py writes it).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from inference.tiny.codes import Bytes

FILE = Path(__file__).parents[1] / "meanings.npz"
LEAST, MOST = -8, 7  # of the numbers: two of them fit into a byte
COMPARED = 36  # the first numbers, which heads compare (wiring.py)


@cache
def meanings() -> tuple[dict[str, int], Bytes]:
    """The place of every known word, and the vectors."""
    with np.load(FILE) as held:
        words, packed = held["words"].tobytes().decode().split(), held["vectors"]
    pairs = np.stack((packed >> 4, packed & 15), axis=2).reshape(len(packed), -1)
    return {word: place for place, word in enumerate(words)}, pairs.astype(np.int8) + np.int8(LEAST)


def write(target: Path, words: Sequence[str], vectors: Bytes) -> None:
    """Writes `words`, the most common first, and their vectors."""
    small = (vectors.astype(np.int16) - LEAST).astype(np.uint8)
    joined = np.frombuffer(" ".join(words).encode(), dtype=np.uint8)
    np.savez_compressed(target, words=joined, vectors=small[:, 0::2] << 4 | small[:, 1::2])
