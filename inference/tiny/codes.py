"""The fixed part of every token's rows: the codes of its word's pieces, and features of its spelling.

The model is trained on a small part of the vocabulary and must copy words from all of it, so a row is only
partly learned. It is the sum of learned linear maps of the token's codes and features, the same maps for all:

- The pieces that the word splits into without a leading space: " Paris" and "Paris" share a code, which is
  +-1, drawn by a hash of the piece's id. So "write the first piece's code" copies a word to a place where no
  space may stand, whether or not the word is one token there.
- The token's own code, or that of its word's second piece, which separates " San" from " Santos".
- The first and the last three letters, in either case, by which a word is found in a name that is cut
  elsewhere (" pollen" in "_p" and "ollen").
- The meaning, for common words, which connects a room with a hotel, and features of the spelling.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

VOCABULARY = 201_088
CODE_DIM = 64
SLOTS = 3  # the number of pieces in a row; 99 % of the words have at most three
FEATURES = 20
# The rows of a map, in order: codes of the first two pieces, the token's own code, the code of the third
# piece, the features, codes of its edges. The first ones have dimensions of their own as far as those reach.
FIRST, SECOND, OWN, THIRD = (slice(CODE_DIM * at, CODE_DIM * (at + 1)) for at in range(SLOTS + 1))
SPELLING = slice(CODE_DIM * (SLOTS + 1), CODE_DIM * (SLOTS + 1) + FEATURES)
PIECES = (FIRST, SECOND, THIRD)
BEGINNING, ENDING = (
    slice(SPELLING.stop + CODE_DIM * at, SPELLING.stop + CODE_DIM * (at + 1)) for at in (0, 1)
)
EDGES = (BEGINNING, ENDING)
MEANING_DIM = 64
MEANING = slice(ENDING.stop, ENDING.stop + MEANING_DIM)  # the word's vector, in whole numbers
# Other kinds of codes hash ids that no token has.
_OWN_IDS, _EDGE_IDS = 1 << 20, (1 << 21, 1 << 22)
CODE_SEED = 0x9E3779B97F4A7C15

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The fixed data of every token, by id: its pieces (-1: none) and the bits of its features."""

    pieces: Ints  # VOCABULARY x SLOTS
    features: Ints  # VOCABULARY
    edges: Ints  # VOCABULARY x 2: the numbers of its first and of its last three letters
    meanings: Ints  # VOCABULARY: the index of its word's vector, -1: none is known
    vectors: Bytes  # x MEANING_DIM: of the words whose meaning is known


def id_codes(ids: Ints) -> Floats:
    """The codes of `ids`, one row of +-1 each; an id of -1 has the zero code."""
    with np.errstate(over="ignore"):
        state = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(CODE_SEED)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    as_bytes = np.ascontiguousarray(state.astype("<u8")).view(np.uint8).reshape(*ids.shape, 8)
    signs = np.unpackbits(as_bytes, axis=-1).astype(np.float32) * 2 - 1
    signs[ids < 0] = 0
    return signs


def spelling_features(bits: Ints) -> Floats:
    """The feature bits as columns of 0 and 1."""
    return ((bits[:, None] >> np.arange(FEATURES)) & 1).astype(np.float32)


def own_codes(table: TokenTable, ids: Ints) -> Floats:
    """The codes of `ids` themselves, or of their second pieces."""
    second = table.pieces[ids, 1]
    return id_codes(np.where(second < 0, ids, second) + _OWN_IDS)


def edge_codes(end: int, numbers: Ints) -> Floats:
    """The codes of the first (`place` 0) or the last (1) three letters."""
    return id_codes(np.where(numbers < 0, numbers, numbers + _EDGE_IDS[end]))
