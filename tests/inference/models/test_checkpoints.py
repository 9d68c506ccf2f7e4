"""Checkpoints that do not fit: the error names the file, the tensor, both shapes, and a remedy.
Both kinds of config.json, as published for the 20b model, and the errors of bad ones.
"""

import json
import logging
import os
import pty
import re
import shutil
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.config import ModelConfig, parse_config, read_config
from inference.engine import CheckpointError
from inference.models.gpt_oss import load_model
from inference.ops.rope import rope_frequencies
from inference.progress import ProgressBar
from tests.doubles.inference.random_checkpoint import write_random_checkpoint

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))


def error_of(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(folder, device=CPU)
    return str(caught.value)


LAYER = "model.layers.1.self_attn.k_proj.weight"
SINKS = "model.layers.2.self_attn.sinks"
SCALES = "model.layers.0.mlp.experts.down_proj_scales"
TENSORS: list[tuple[str, torch.Tensor | None, str]] = [
    (LAYER, torch.zeros(31, 64), f"model.safetensors|{LAYER}|31×64|32×64"),
    (SINKS, None, f"'{SINKS}' is missing|download it again"),
    (SCALES, torch.zeros(6, 64, 3), f"{SCALES}|F32|U8"),
]
CONFIGS: list[tuple[dict[str, object], str]] = [
    ({"intermediate_size": 128}, "mlp.experts.gate_up_proj_bias|6×192|6×256|different models"),
    ({"num_hidden_layers": 5, "layer_types": ["full_attention"] * 5}, "model.layers.3."),
]


@pytest.mark.parametrize(("name", "tensor", "parts"), TENSORS)
def test_a_tensor_that_does_not_fit_or_is_missing_is_named(
    folder: Path, name: str, tensor: torch.Tensor | None, parts: str
) -> None:
    tensors = {key: value.clone() for key, value in load_file(folder / "model.safetensors").items()}
    del tensors[name]
    save_file(tensors | ({} if tensor is None else {name: tensor}), folder / "model.safetensors")
    message = error_of(folder)
    assert all(part in message for part in parts.split("|"))


@pytest.mark.parametrize(("changes", "parts"), CONFIGS)
def test_a_config_of_another_model_is_reported(folder: Path, changes: dict[str, object], parts: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")
    message = error_of(folder)
    assert all(part in message for part in parts.split("|"))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 4792272488\n"


@pytest.mark.parametrize(
    ("content", "words"), [(None, "interrupted download"), (POINTER, "git lfs pull")], ids=["cut", "pointer"]
)
def test_a_file_without_its_tensors_is_named(folder: Path, content: bytes | None, words: str) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000] if content is None else content)
    message = error_of(folder)
    assert "model.safetensors" in message
    assert words in message


def test_a_missing_shard_and_a_broken_index_are_named(tmp_path: Path, config: ModelConfig) -> None:
    write_random_checkpoint(tmp_path, config, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors is missing" in error_of(tmp_path)
    for index in ("{", "{}", "[]", '{"weight_map": 3}'):
        (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
        assert "model.safetensors.index.json" in error_of(tmp_path)


def test_what_a_folder_lacks_or_holds_instead_is_named(tmp_path: Path, checkpoint: Path) -> None:
    assert "no checkpoint" in error_of(tmp_path)
    shutil.copy(checkpoint / "config.json", tmp_path)
    assert "no .safetensors file" in error_of(tmp_path)
    save_file({"transformer.wte.weight": torch.zeros(3, 3)}, tmp_path / "model.safetensors")
    assert "holds no gpt-oss model" in error_of(tmp_path)


def test_mxfp4_needs_sizes_of_whole_blocks(tmp_path: Path, config: ModelConfig) -> None:
    odd = replace(config, intermediate=48)
    with pytest.raises(CheckpointError, match=r"blocks of 32, but intermediate_size is 48"):
        write_random_checkpoint(tmp_path, odd)


def test_a_context_longer_than_the_models_is_refused(checkpoint: Path) -> None:
    assert load_model(checkpoint, device=CPU, context=100).config.context_length == 100
    with pytest.raises(CheckpointError, match=r"requested context is 2000 tokens; .* supports 1024"):
        load_model(checkpoint, device=CPU, context=2000)


@pytest.mark.parametrize("columns", [30, 40, 60, 200])
def test_progress_fits_a_line_of_the_terminal(columns: int) -> None:
    controller, end = pty.openpty()
    termios.tcsetwinsize(end, (24, columns))
    with open(end, "w") as stream, ProgressBar("Loading weights", 2, stream=stream) as bar:
        bar.advance()
    drawn = ""
    while not drawn.endswith("\n"):
        drawn += os.read(controller, 4096).decode()
    os.close(controller)
    lines = re.split(r"[\r\n]+", drawn.strip())
    assert len(lines) == 2
    assert all(line.startswith("Loading weights") and len(line) < columns for line in lines)
    assert "[" not in drawn if columns == 30 else "]  50%" in drawn


@pytest.mark.parametrize("show", [True, False, None])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_drawn_on_terminals_and_on_request(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], show: bool | None, is_terminal: bool
) -> None:
    sys.stderr.isatty = lambda: is_terminal  # type: ignore[method-assign]
    load_model(checkpoint, device=CPU, progress=show)
    drawn = capsys.readouterr().err
    assert ("Loading weights [##############################] 100%" in drawn) == (
        is_terminal if show is None else show
    )


ORIGINAL: dict[str, Any] = json.loads("""{
    "num_hidden_layers": 24, "num_experts": 32, "experts_per_token": 4, "vocab_size": 201088,
    "hidden_size": 2880, "intermediate_size": 2880, "swiglu_limit": 7.0, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
    "initial_context_length": 4096, "rope_theta": 150000, "rope_scaling_factor": 32.0, "rope_ntk_alpha": 1,
    "rope_ntk_beta": 32
}""")
HUGGING_FACE: dict[str, Any] = json.loads("""{
    "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
    "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
    "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
    "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 199999,
    "quantization_config": {"quant_method": "mxfp4"}, "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "rope_type": "yarn", "truncate": false
    },
    "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
    "tie_word_embeddings": false, "transformers_version": "4.55.0", "use_cache": true, "vocab_size": 201088
}""")
HUGGING_FACE["layer_types"] = ["sliding_attention", "full_attention"] * 12


def without(raw: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in keys}


@pytest.fixture(autouse=True, scope="module")
def _small_vocabularies_load() -> None:
    """Here the check of the vocabulary is under test."""


@pytest.fixture
def config() -> ModelConfig:
    return parse_config(HUGGING_FACE)


def test_both_kinds_agree_on_the_20b_model(config: ModelConfig) -> None:
    assert parse_config(ORIGINAL) == config
    assert (config.layers, config.experts, config.experts_per_token) == (24, 32, 4)
    assert config.context_length == 131_072
    assert [config.window(layer) for layer in range(4)] == [128, None, 128, None]


def test_the_newer_form_of_rope_and_what_hugging_face_omits(config: ModelConfig) -> None:
    newer = without(HUGGING_FACE, "rope_scaling", "rope_theta")
    newer["rope_parameters"] = HUGGING_FACE["rope_scaling"] | {"rope_theta": 150000}
    assert parse_config(newer) == config
    left_out = ("layer_types", "rope_scaling", "max_position_embeddings", "attention_bias", "rms_norm_eps")
    assert parse_config(without(HUGGING_FACE, *left_out)) == config


def test_rope_is_not_rounded_and_has_its_concentration(config: ModelConfig) -> None:
    frequencies, concentration = rope_frequencies(config.rope, 64)
    assert concentration == pytest.approx(1.34657, abs=1e-5)
    plain = [150_000 ** (-2 * pair / 64) for pair in range(32)]
    share = (12 - 8.093) / (17.398 - 8.093)
    wanted = {pair: plain[pair] for pair in (0, 5, 8)} | {pair: plain[pair] / 32 for pair in (18, 31)}
    assert {pair: float(frequencies[pair]) for pair in wanted} == pytest.approx(wanted, rel=1e-6)
    assert float(frequencies[12]) == pytest.approx(plain[12] * (1 - share + share / 32), rel=1e-3)
    default = HUGGING_FACE | {"rope_scaling": {"rope_type": "default"}}
    frequencies, concentration = rope_frequencies(parse_config(default).rope, 64)
    assert concentration == 1.0
    assert frequencies.tolist() == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("raw", [ORIGINAL, HUGGING_FACE], ids=["original", "hf"])
def test_unknown_keys_are_a_warning_that_names_them(
    raw: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        parse_config(raw)
        assert not caplog.records
        parse_config(raw | {"brand_new": 1})
    assert "brand_new" in caplog.text


YARN = {"rope_type": "yarn"}
WRONG: list[tuple[str, Any, str | None]] = [
    ("hidden_size", None, "'hidden_size' is missing"),
    ("num_hidden_layers", "many", "'num_hidden_layers' must be a whole number, not 'many'"),
    ("num_key_value_heads", 7, "multiple of num_key_value_heads"),
    ("head_dim", 63, "head_dim must be even"),
    ("num_experts_per_tok", 33, "must not exceed the experts"),
    ("layer_types", ["sliding_attention"], "one layer type per layer"),
    ("layer_types", ["linear"] * 24, "'linear'; known types are sliding_attention"),
    ("layer_types", [["sliding_attention"]] * 24, None),
    ("layer_types", 3, None),
    ("rope_scaling", {"rope_type": "longrope"}, "'longrope'"),
    ("rope_scaling", YARN | {"attention_factor": "much"}, None),
    ("rope_scaling", YARN | {"factor": float("inf")}, None),
    ("rope_scaling", YARN | {"original_max_position_embeddings": 0}, None),
    ("rope_theta", float("nan"), None),
    ("sliding_window", 0, "at least 1"),
    ("sliding_window", float("inf"), None),
    ("vocab_size", 500, "'vocab_size' is 500; .* 201088 ids of the Harmony format"),
    ("hidden_act", "gelu", "'hidden_act' is 'gelu'; only 'silu'"),
    ("quantization_config", {"quant_method": "gptq"}, "'quantization_config.quant_method' is 'gptq'"),
    ("quantization_config", "mxfp4", "'quantization_config' must be an object"),
    *((size, 0, None) for size in ("num_hidden_layers", "num_attention_heads", "rope_theta")),
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG)
def test_the_error_of_a_config_names_the_place(tmp_path: Path, key: str, value: Any, message: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HUGGING_FACE | {key: value}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=message) as caught:
        read_config(tmp_path / "config.json")
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", "\x00", "[" * 100_000], ids=["{", "[]", "null", "deep"])
def test_a_config_that_is_no_object_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"JSON|cannot be read"):
        read_config(tmp_path / "config.json")
