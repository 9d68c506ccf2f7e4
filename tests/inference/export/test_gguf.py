"""The GGUF file of a checkpoint, read back with the `gguf` package; a live llama-server runs it elsewhere."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from gpt_oss_server.cli.main import main
from gpt_oss_server.harmony.encoding import load_encoding
from inference.config import ModelConfig
from inference.engine import CheckpointError
from inference.export.gguf_file import Vocabulary, alternating, byte_merges, spelt, spread_layers, write_gguf
from inference.models.gpt_oss import GptOss
from inference.models.tensor_files import TensorFiles
from inference.models.weights import find_checkpoint, load_weights

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

BYTES = [bytes([byte]) for byte in range(256)]
SMALL = Vocabulary([*BYTES, b"ab", b"abc", b"bc", b" a"], {260: "<|start|>"})


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """From an array in memory: the reader makes a million slices, which cost much more of a mapped file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "memmap", lambda path, mode: np.fromfile(path, np.uint8))
        reader = gguf.GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items()}, {
        tensor.name: tensor for tensor in reader.tensors
    }


@pytest.fixture(scope="module")
def written(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(checkpoint, path, SMALL, name="small")
    return path


def test_the_shape_is_the_configs(written: Path, config: ModelConfig) -> None:
    fields, tensors = read(written)
    assert fields["general.architecture"] == "gpt-oss"
    assert fields["gpt-oss.block_count"] == config.layers
    assert fields["gpt-oss.attention.head_count_kv"] == config.kv_heads
    assert fields["gpt-oss.expert_used_count"] == config.experts_per_token
    assert fields["gpt-oss.attention.sliding_window"] == config.sliding_window
    assert fields["gpt-oss.rope.freq_base"] == config.rope.theta
    assert len(fields["tokenizer.ggml.tokens"]) == config.vocab_size
    assert fields["tokenizer.ggml.add_bos_token"] is False
    assert len(tensors) == 3 + 19 * config.layers


def test_weights_are_the_checkpoints(written: Path, checkpoint: Path, config: ModelConfig) -> None:
    _, tensors = read(written)
    files = TensorFiles(find_checkpoint(checkpoint))
    first = "model.layers.1."
    shape = (config.kv_heads * config.head_dim, config.hidden)
    stored = files.take(f"{first}self_attn.k_proj.weight", shape).bfloat16()
    found = torch.from_numpy(np.array(tensors["blk.1.attn_k.weight"].data)).view(torch.bfloat16)
    assert torch.equal(found.reshape(shape), stored)
    sinks = files.take(f"{first}self_attn.sinks", (config.heads,)).float()
    assert np.array_equal(tensors["blk.1.attn_sinks.weight"].data, sinks.numpy())


def test_packed_experts_keep_every_value(written: Path, checkpoint: Path, config: ModelConfig) -> None:
    """llama.cpp's own dequantisation gives what the checkpoint's blocks and scales mean."""
    _, tensors = read(written)
    files = TensorFiles(find_checkpoint(checkpoint))
    name = "model.layers.0.mlp.experts.gate_up_proj"
    rows, blocks = 2 * config.intermediate, config.hidden // 32
    packed = files.take(f"{name}_blocks", (config.experts, rows, blocks, 16), bytes_only=True)
    scales = files.take(f"{name}_scales", (config.experts, rows, blocks), bytes_only=True)
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    levels = torch.cat((levels, -levels))
    values = levels[torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).long()]
    meant = (values * torch.exp2(scales.float() - 127)[..., None]).flatten(-2).numpy()
    biases = files.take(f"{name}_bias", (config.experts, rows)).float().numpy()
    for place, part in enumerate(("gate", "up")):
        tensor = tensors[f"blk.0.ffn_{part}_exps.weight"]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.MXFP4
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(found.reshape(meant[:, place::2].shape), meant[:, place::2])
        assert np.array_equal(tensors[f"blk.0.ffn_{part}_exps.bias"].data, biases[:, place::2])


def test_merges_make_each_token_of_two_earlier_ones() -> None:
    assert list(byte_merges(SMALL.ordinary)) == ["a b", "ab c", "b c", f"{spelt(b' ')} a"]
    with pytest.raises(ValueError, match="token 256"):
        list(byte_merges([*BYTES, b"abcd"]))
    encoding = load_encoding()
    ordinary = [encoding.token_bytes([token]) for token in range(20_000)]
    merges = list(byte_merges(ordinary))
    assert [merge.replace(" ", "") for merge in merges] == [spelt(t) for t in ordinary if len(t) > 1]


def test_a_file_is_whole_or_missing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with pytest.raises(CheckpointError, match="No space left"):
        write_gguf(checkpoint, tmp_path / "model.gguf", SMALL, name="small")
    assert list(tmp_path.iterdir()) == []


def test_layers_that_do_not_alternate_get_layers_of_zeros_between_them(
    checkpoint: Path, config: ModelConfig, tmp_path: Path
) -> None:
    for file in checkpoint.iterdir():
        (tmp_path / file.name).symlink_to(file)
    fields = json.loads((checkpoint / "config.json").read_text())
    fields["layer_types"] = ["full_attention"] * config.layers
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(fields))
    write_gguf(tmp_path, tmp_path / "made.gguf", SMALL, name="small")
    written, tensors = read(tmp_path / "made.gguf")
    assert written["gpt-oss.block_count"] == 2 * config.layers
    assert not np.array(tensors["blk.0.attn_output.weight"].data).any()
    assert not np.array(tensors["blk.0.ffn_down_exps.weight"].data).any()
    assert np.array(tensors["blk.1.attn_output.weight"].data).any()


@pytest.mark.parametrize(
    ("path", "words"), [("", "is a folder"), ("no/x.gguf", "does not exist"), ("x", "--force")]
)
def test_the_command_checks_the_place_first(
    path: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").touch()
    assert main(["export", "gguf", str(tmp_path / path)]) == 1
    assert words in capsys.readouterr().err


def test_the_command_writes_a_checkpoint(
    whole_vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "whole.gguf"
    assert main(["export", "gguf", str(path), "--model", str(whole_vocabulary)]) == 0
    assert f"llama-server -m {path}" in capsys.readouterr().out
    fields, _ = read(path)
    tokens = fields["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert (tokens[200006], tokens[0], len(tokens)) == ("<|start|>", "!", 201_088)
    ranks = {merge: rank for rank, merge in enumerate(fields["tokenizer.ggml.merges"])}
    assert len(ranks) == 199_998 - 256
    assert all(first < second for first, second in pairwise(ranks.values()))


@pytest.mark.parametrize(
    ("slides", "places"),
    [("SFS", [0, 1, 2]), ("FS", [None, 0, 1]), ("SS", [0, None, 1]), ("SFFF", [0, 1, None, 2, None, 3])],
)
def test_layers_are_inserted_where_two_of_one_kind_meet(slides: str, places: list[int | None]) -> None:
    assert spread_layers([kind == "S" for kind in slides]) == places


def test_layers_that_alternate_stay(checkpoint: Path, config: ModelConfig) -> None:
    files = TensorFiles(find_checkpoint(checkpoint))
    assert alternating(files, config) == (files, config)


@pytest.mark.parametrize("slides", [(False, True), (True, True), (False, False)])
def test_the_logits_stay_the_same(slides: tuple[bool, ...], checkpoint: Path, config: ModelConfig) -> None:
    config = replace(config, sliding_layers=(slides * config.layers)[: config.layers])
    files = TensorFiles(find_checkpoint(checkpoint))
    wider, widened = alternating(files, config)
    assert widened.layers > config.layers
    assert widened.sliding_layers == tuple(layer % 2 == 0 for layer in range(widened.layers))
    found, wanted = (
        GptOss(each, load_weights(source, each, device=torch.device("cpu"), dtype=torch.float32))
        for source, each in ((wider, widened), (files, config))
    )
    tokens = torch.randint(config.vocab_size, (3 * config.sliding_window,)).tolist()
    assert torch.equal(
        found.all_logits(tokens, found.new_cache()), wanted.all_logits(tokens, wanted.new_cache())
    )
