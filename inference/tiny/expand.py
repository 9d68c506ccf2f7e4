"""Expands the package's compact file into an ordinary Hugging Face folder with the full vocabulary.

Takes `tiny.safetensors`: the layers in the checkpoint's form, the learned rows of the stock's tokens, the
maps for every token's fixed part, and the table of fixed data. Writes model.safetensors with 201,088 rows of
embedding and head, and copies of the configs. It must not need the tokenizer.

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

import lzma
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

COMPACT = Path(__file__).parent / "tiny.safetensors"
# At the temperature of the second: the second choice of so small a model is rarely right.
CONFIGS = ("config.json", "generation_config.json")
_PART = 8192  # tokens
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


def unpack_table(tensors: dict[str, Tensor]) -> TokenTable:
    def data(name: str) -> bytes:
        return lzma.decompress(tensors[f"table.{name}"].numpy().tobytes())

    def unpacked(name: str, columns: int) -> Ints:
        four = np.frombuffer(data(name), dtype=np.uint8).reshape(4, columns, VOCABULARY).astype(np.uint32)
        joined: Ints = (four[0] | four[1] << 8 | four[2] << 16 | four[3] << 24).astype(np.int32).T.copy()
        return joined

    pieces = unpacked("pieces", SLOTS)
    own = np.arange(VOCABULARY, dtype=np.int32)
    pieces[:, 0] = np.where(pieces[:, 0] == -2, own, pieces[:, 0])
    return TokenTable(
        pieces,
        unpacked("features", 1)[:, 0],
        unpacked("edges", len(EDGES)),
        unpacked("meanings", 1)[:, 0],
        np.frombuffer(data("vectors"), dtype=np.int8).reshape(-1, MEANING_DIM),
    )


def unpack_rows(name: str, tensors: dict[str, Tensor]) -> Tensor:
    return tensors[name].float() * tensors[f"{name}.scales"].float()[:, None]


def read_compact(compact: Path) -> dict[str, Tensor]:
    with safe_open(compact, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


def write_expanded(folder: Path) -> None:
    """Writes the checkpoint's files into `folder`."""
    tensors = read_compact(COMPACT)
    # Tensors that a checkpoint has under the same name; the compact file stores attention as bytes.
    out = {
        name: unpack_rows(name, tensors).bfloat16() if f"{name}.scales" in tensors else tensors[name]
        for name in tensors
        if name.startswith("model.") and not name.endswith(".scales")
    }
    out["model.embed_tokens.weight"], out["lm_head.weight"] = _rows(tensors)
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    for name in CONFIGS:
        shutil.copyfile(COMPACT.with_name(name), folder / name)


def _rows(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The embedding and the head: a token's learned row, if any, added to its fixed part."""
    table = unpack_table(tensors)
    everything = np.arange(VOCABULARY, dtype=np.int32)
    codes, own = torch.from_numpy(id_codes(everything)), torch.from_numpy(own_codes(table, everything))
    features = torch.from_numpy(spelling_features(table.features))
    kinds = [(codes, table.pieces[:, slot], at) for slot, at in enumerate(PIECES)]
    for edge, at in enumerate(EDGES):
        known = np.arange(table.edges[:, edge].max() + 1, dtype=np.int32)
        kinds.append((torch.from_numpy(edge_codes(edge, known)), table.edges[:, edge], at))
    kinds.append((torch.from_numpy(table.vectors.astype(np.float32)), table.meanings, MEANING))
    maps = torch.cat((tensors["map.in"].float(), tensors["map.out"].float()), dim=1)
    hidden = maps.shape[1] // 2
    ids, learned = _learned(tensors, hidden)
    embedding, head = (torch.empty(VOCABULARY, hidden, dtype=torch.bfloat16) for _ in range(2))
    # Part by part, so that the sums stay in the processor's cache: four times faster.
    for begin in range(0, VOCABULARY, _PART):
        end = min(begin + _PART, VOCABULARY)
        rows = (features[begin:end] @ maps[SPELLING]).addmm_(own[begin:end], maps[OWN])
        for coded, column, at in kinds:
            numbers = torch.from_numpy(column[begin:end]).long()
            having = (numbers >= 0).nonzero().squeeze(1)
            rows.index_add_(0, having, coded[numbers[having]] @ maps[at])
        first, last = torch.searchsorted(ids, torch.tensor([begin, end])).tolist()
        rows[ids[first:last] - begin] += learned[first:last]
        embedding[begin:end], head[begin:end] = rows[:, :hidden], rows[:, hidden:]
    return embedding, head


def _learned(tensors: dict[str, Tensor], hidden: int) -> tuple[Tensor, Tensor]:
    """The ids of tokens with learned rows, in order, and those rows of embedding and head side by side."""
    ids, order = tensors["learned.ids"].long().sort()
    rows = [unpack_rows(f"learned.{way}", tensors)[order] for way in ("in", "out")]
    return ids, torch.cat([F.pad(part, (0, hidden - part.shape[1])) for part in rows], dim=1)
