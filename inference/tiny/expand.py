"""Expands the package's compact file into an ordinary Hugging Face folder with the full vocabulary.

Takes `tiny.safetensors`: the layers in the checkpoint's form, the learned rows of the stock's tokens, the
maps for every token's fixed part, and the table of fixed data. Writes model.safetensors with 201,088 rows of
embedding and head, and copies of the configs. It must not need the tokenizer.
"""

import lzma
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.codes import (
    EDGES,
    MEANING,
    MEANING_DIM,
    OWN,
    PIECES,
    SLOTS,
    SPELLING,
    VOCABULARY,
    Ints,
    TokenTable,
    edge_codes,
    id_codes,
    own_codes,
    spelling_features,
)

COMPACT = Path(__file__).parent / "tiny.safetensors"
# At the temperature of the second: the second choice of so small a model is rarely right.
CONFIGS = ("config.json", "generation_config.json")
_PART = 8192  # tokens


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
