"""Expands the package's compact file into an ordinary Hugging Face folder with the full vocabulary.

Takes `tiny.safetensors`: the layers in the checkpoint's form, the learned rows of the stock's tokens, the
maps for every token's fixed part, and the table of fixed data. Writes config.json, generation_config.json and
model.safetensors with 201,088 rows of embedding and head. It must not need the tokenizer.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    codes_of,
    edge_codes,
    features_of,
    own_codes,
)

COMPACT = Path(__file__).parent / "tiny.safetensors"
_PART = 8192  # tokens
TEMPERATURE, TOP_P = 0.3, 0.95  # the second choice of so small a model is rarely right


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of the embedded model, by their names in config.json."""

    num_hidden_layers: int = 7
    hidden_size: int = 320
    learned_size: int = 192  # the dimensions of a token's learned row; the layers use the others
    intermediate_size: int = 128
    num_attention_heads: int = 12
    num_key_value_heads: int = 4
    head_dim: int = 64  # a code fits into one head
    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    sliding_window: int = 128
    swiglu_limit: float = 7.0
    rms_norm_eps: float = 1e-5
    rope_theta: float = 150_000.0
    rope_factor: float = 32.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 4096
    context: int = 131_072
    sliding_layers: tuple[int, ...] = (0, 2)  # these see only the window


def _unplaned(data: bytes, columns: int) -> Ints:
    four = np.frombuffer(data, dtype=np.uint8).reshape(4, columns, VOCABULARY).astype(np.uint32)
    joined: Ints = (four[0] | four[1] << 8 | four[2] << 16 | four[3] << 24).astype(np.int32).T.copy()
    return joined


def unpack_table(tensors: dict[str, Tensor]) -> TokenTable:
    def data(name: str) -> bytes:
        return lzma.decompress(tensors[f"table.{name}"].numpy().tobytes())

    def unpacked(name: str, columns: int) -> Ints:
        return _unplaned(data(name), columns)

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


def read_compact(compact: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a compact file, and its metadata."""
    with safe_open(compact, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        return tensors, file.metadata()


def shape_of(about: dict[str, str]) -> Shape:
    """The sizes that a compact file states, with defaults for the others."""
    sizes: dict[str, Any] = json.loads(about["shape"])
    for name, size in sizes.items():
        if isinstance(size, list):  # JSON has no tuples
            sizes[name] = tuple(size)
    return Shape(**sizes)


def layers_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a checkpoint has under the same name; the compact file stores attention as bytes."""
    names = [name for name in tensors if name.startswith("model.") and not name.endswith(".scales")]
    return {
        name: unpack_rows(name, tensors).bfloat16() if f"{name}.scales" in tensors else tensors[name]
        for name in names
    }


def write_expanded(folder: Path, compact: Path = COMPACT) -> None:
    """Writes the checkpoint's files into `folder`."""
    tensors, about = read_compact(compact)
    out = layers_of(tensors)
    out["model.embed_tokens.weight"], out["lm_head.weight"] = _rows(tensors)
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    generation = {
        "do_sample": True,
        "eos_token_id": [200002, 199999, 200012],
        "pad_token_id": 199999,
        "temperature": TEMPERATURE,
        "top_p": TOP_P,
    }
    (folder / "config.json").write_text(
        json.dumps(_config(shape_of(about)), indent=2) + "\n", encoding="utf-8"
    )
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")


def _rows(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The embedding and the head: a token's learned row, if any, added to its fixed part."""
    table = unpack_table(tensors)
    everything = np.arange(VOCABULARY, dtype=np.int32)
    codes, own = torch.from_numpy(codes_of(everything)), torch.from_numpy(own_codes(table, everything))
    features = torch.from_numpy(features_of(table.features))
    kinds = [(codes, table.pieces[:, slot], at) for slot, at in enumerate(PIECES)]
    for place, at in enumerate(EDGES):
        known = np.arange(table.edges[:, place].max() + 1, dtype=np.int32)
        kinds.append((torch.from_numpy(edge_codes(place, known)), table.edges[:, place], at))
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


def _config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": 200002,
        "pad_token_id": 199999,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "num_local_experts": shape.num_local_experts,
        "num_experts_per_tok": shape.num_experts_per_tok,
        "experts_per_token": shape.num_experts_per_tok,
        "layer_types": [
            "sliding_attention" if layer in shape.sliding_layers else "full_attention"
            for layer in range(shape.num_hidden_layers)
        ],
        "sliding_window": shape.sliding_window,
        "swiglu_limit": shape.swiglu_limit,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": _rope_scaling(shape),
        "initial_context_length": shape.original_context,
        "max_position_embeddings": shape.context,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.9,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": VOCABULARY,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
    }


def _rope_scaling(shape: Shape) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "factor": shape.rope_factor,
        "beta_fast": shape.beta_fast,
        "beta_slow": shape.beta_slow,
        "original_max_position_embeddings": shape.original_context,
        "truncate": False,
    }
