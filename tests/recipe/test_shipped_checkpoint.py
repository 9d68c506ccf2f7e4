"""The shipped file: small, complete, with the same numbers as in transformers, and fluent in Harmony."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from inference.local.engine import read_generation_defaults
from inference.models.gpt_oss import GptOss, load_model
from inference.tiny.codes import fixed_part
from inference.tiny.expand import COMPACT, write_expanded
from inference.tiny.shape import Shape
from recipe.network.model import TinyGptOss
from recipe.text.vocabulary import token_table
from recipe.training.export import compact, state_of

MOST_BYTES = 16_000_000
PROMPT = torch.randint(0, 200_000, (300,), generator=torch.Generator().manual_seed(2)).tolist()


@pytest.fixture(scope="module")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_expanded(folder)
    return folder


@pytest.fixture(scope="module")
def model(expanded: Path) -> GptOss:
    return load_model(expanded, device=torch.device("cpu"))


def test_the_compact_file_is_small() -> None:
    assert COMPACT.stat().st_size <= MOST_BYTES


def test_it_is_an_ordinary_checkpoint_of_the_full_vocabulary(expanded: Path) -> None:
    config = json.loads((expanded / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["GptOssForCausalLM"]
    assert config["vocab_size"] == 201_088
    assert config["max_position_embeddings"] >= 32_768
    assert config["quantization_config"]["quant_method"] == "mxfp4"
    with safe_open(expanded / "model.safetensors", framework="pt") as file:
        kinds = {str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
        assert file.get_slice("lm_head.weight").get_shape() == [201_088, config["hidden_size"]]
    assert kinds == {"BF16", "U8"}
    assert set(read_generation_defaults(expanded)) == {"temperature", "top_p"}


@pytest.mark.training
def test_expanding_it_twice_gives_the_same_bytes(expanded: Path, tmp_path: Path) -> None:
    write_expanded(tmp_path)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (expanded / name).read_bytes()


@pytest.mark.training
@torch.inference_mode()
def test_expanded_rows_equal_those_of_training(tmp_path: Path, small_shape: Shape) -> None:
    torch.manual_seed(0)
    learned = torch.tensor([17, 5_000, 90_000])
    trained = TinyGptOss(small_shape, len(learned))
    for rows in (trained.map_out, trained.learned_out):
        torch.nn.init.normal_(rows)
    file = tmp_path / "compact.safetensors"
    save_file(
        compact(trained.state_dict(), learned), file, metadata={"shape": json.dumps(asdict(small_shape))}
    )
    write_expanded(tmp_path, file)
    ids = torch.cat([learned, torch.randint(0, 201_088, (500,))])
    places = torch.zeros(len(ids), dtype=torch.long)
    places[:3] = torch.arange(1, 4)
    fixed = torch.from_numpy(fixed_part(token_table(), ids.int().numpy()))
    with safe_open(tmp_path / "model.safetensors", framework="pt") as written:
        for name, rows in (("model.embed_tokens", trained.rows_in), ("lm_head", trained.rows_out)):
            found, wanted = written.get_tensor(f"{name}.weight")[ids].float(), rows(places, fixed)
            assert ((found - wanted).norm(dim=1) < 0.02 * wanted.norm(dim=1) + 0.02).all()


@pytest.mark.training
def test_a_run_can_start_from_an_export(tmp_path: Path, small_shape: Shape) -> None:
    torch.manual_seed(0)
    trained = TinyGptOss(small_shape, 3)
    trained.quantise_experts(True)
    about = {"shape": json.dumps(asdict(small_shape)), "step": "7", "tokens": "90", "seconds": "1.5"}
    file = tmp_path / "compact.safetensors"
    save_file(compact(trained.state_dict(), torch.tensor([17, 5_000, 90_000])), file, metadata=about)
    saved = state_of(file)
    assert (saved["step"], saved["tokens"], saved["seconds"]) == (7, 90, 1.5)
    assert saved["learned"].tolist() == [17, 5_000, 90_000]
    again = TinyGptOss(small_shape, 3)
    again.load_state_dict(saved["model"])
    again.quantise_experts(True)
    embedded = torch.randn(1, 40, 32)
    with torch.inference_mode():
        wanted, found = trained(embedded)[0], again(embedded)[0]
    assert (found - wanted).norm() / wanted.norm() < 0.02
    for name in ("learned_in", "learned_out", "map_in"):
        assert torch.allclose(saved["model"][name][1:], trained.state_dict()[name][1:], atol=0.02)


@pytest.mark.training  # `make test` compares small checkpoints (tests/inference/models/test_numerics.py)
@torch.inference_mode()
def test_its_logits_are_those_of_transformers(expanded: Path, model: GptOss) -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers = pytest.importorskip("transformers")
    outsider = transformers.GptOssForCausalLM.from_pretrained(
        expanded, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    wanted = outsider(torch.tensor([PROMPT])).logits[0]
    found = model.all_logits(PROMPT, model.new_cache())
    assert wanted.std() > 0.3
    assert (found - wanted).norm() / wanted.norm() < 1e-4
