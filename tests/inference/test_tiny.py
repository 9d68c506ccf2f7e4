"""The embedded model's file: small, complete, and expanded to the rows that its parts define."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from inference import tiny
from inference.local.engine import generation_defaults
from inference.models.gpt_oss import load_model
from inference.tiny.codes import (
    EDGES,
    MEANING,
    OWN,
    PIECES,
    SPELLING,
    VOCABULARY,
    Ints,
    TokenTable,
    codes_of,
    edge_codes,
    features_of,
    own_codes,
)
from inference.tiny.expand import COMPACT, read_compact, unpack_rows, unpack_table, write_expanded

MOST_BYTES = 16_000_000


@pytest.fixture(scope="module")
def folder() -> Path:
    return tiny.checkpoint()


def fixed_part(table: TokenTable, ids: Ints) -> Tensor:
    """The input of both maps by its definition, for `ids`."""
    out = np.empty((len(ids), MEANING.stop), dtype=np.float32)
    for slot, at in enumerate(PIECES):
        out[:, at] = codes_of(table.pieces[ids, slot])
    out[:, OWN] = own_codes(table, ids)
    out[:, SPELLING] = features_of(table.features[ids])
    for edge, at in enumerate(EDGES):
        out[:, at] = edge_codes(edge, table.edges[ids, edge])
    meanings = table.meanings[ids]
    out[:, MEANING] = np.where(meanings[:, None] < 0, 0, table.vectors[meanings])
    return torch.from_numpy(out)


def test_the_compact_file_is_small() -> None:
    assert COMPACT.stat().st_size <= MOST_BYTES


def test_it_is_an_ordinary_checkpoint_of_the_full_vocabulary(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["GptOssForCausalLM"]
    assert config["vocab_size"] == VOCABULARY
    assert config["max_position_embeddings"] >= 32_768
    assert config["quantization_config"]["quant_method"] == "mxfp4"
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        kinds = {str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
        assert file.get_slice("lm_head.weight").get_shape() == [VOCABULARY, config["hidden_size"]]
    assert kinds == {"BF16", "U8"}
    assert set(generation_defaults(folder)) == {"temperature", "top_p"}


@pytest.mark.proof  # ten seconds, for a file that is frozen
def test_expanding_it_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_expanded(tmp_path)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(("way", "name"), [("in", "model.embed_tokens"), ("out", "lm_head")])
@torch.inference_mode()
def test_expanded_rows_are_the_learned_row_and_the_mapped_fixed_part(
    folder: Path, way: str, name: str
) -> None:
    tensors = read_compact(COMPACT)
    learned_ids, learned = tensors["learned.ids"].long(), unpack_rows(f"learned.{way}", tensors)
    unlearned = torch.randint(0, VOCABULARY, (500,), generator=torch.Generator().manual_seed(2))
    unlearned = unlearned[~torch.isin(unlearned, learned_ids)]
    ids = torch.cat([learned_ids[::100], unlearned])
    wanted = fixed_part(unpack_table(tensors), ids.int().numpy()) @ tensors[f"map.{way}"].float()
    few = learned[::100]
    wanted[: len(few)] += F.pad(few, (0, wanted.shape[1] - few.shape[1]))
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        rows = file.get_tensor(f"{name}.weight")[ids].float()
    assert ((rows - wanted).norm(dim=1) < 0.01 * wanted.norm(dim=1)).all()


def test_codes_are_signs_and_differ() -> None:
    codes = codes_of(np.arange(VOCABULARY, dtype=np.int32))
    assert set(np.unique(codes)) == {-1.0, 1.0}
    assert len(np.unique(codes, axis=0)) == VOCABULARY
    assert not codes_of(np.array([-1], dtype=np.int32)).any()


@pytest.mark.proof  # a minute; `make test` compares small checkpoints (models/test_numerics.py)
@torch.inference_mode()
def test_its_logits_are_those_of_transformers(folder: Path) -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers = pytest.importorskip("transformers")
    prompt = torch.randint(0, 200_000, (300,), generator=torch.Generator().manual_seed(2)).tolist()
    peer = transformers.GptOssForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    wanted = peer(torch.tensor([prompt])).logits[0]
    model = load_model(folder, device=torch.device("cpu"))
    logits = model.all_logits(prompt, model.new_cache())
    assert wanted.std() > 0.3
    assert (logits - wanted).norm() / wanted.norm() < 1e-4
