"""Heads that do not fit a model, a device or an engine: sentences that state what does not fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import inference
from inference.config import ModelConfig
from inference.drafting.config import parse_draft_config
from inference.drafting.loading import load_draft_head
from inference.engine import CheckpointError
from inference.models.gpt_oss import GptOss, load_model
from inference.options import EngineOptions
from tests.doubles.inference.heads import (
    changed_layer,
    llama_config,
    random_tensors,
    speculators_config,
    write_head,
)
from tests.doubles.inference.random_checkpoint import write_random_checkpoint

CPU = torch.device("cpu")
STATES, ROPE = "eagle_aux_hidden_state_layer_ids", "rope_parameters"
EAGLE = {"speculators_model_type": "eagle3"}


def error_of(model: GptOss, folder: Path | str) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_draft_head(str(folder), model)
    return str(caught.value)


REPO = "RedHatAI/gpt-oss-20b-speculator.eagle3"


def test_a_folder_without_a_config_holds_no_head(model: GptOss, tmp_path: Path, checkpoint: Path) -> None:
    assert f"hf download {REPO} --local-dir" in error_of(model, REPO), "a repo's name, and no folder"
    assert "holds no draft head: it has no config.json" in error_of(model, tmp_path)
    for content, text in (("{", "config.json cannot be read as JSON"), ("[]", "must hold a JSON object")):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        assert text in error_of(model, tmp_path)
    assert "LlamaForCausalLMEagle3" in error_of(model, checkpoint), "the folder of a whole model"


NO_HEAD, NO_LAYER = "this is no EAGLE-3 draft head", "must be an object|is missing"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"architectures": 7}, NO_HEAD),
        ({"architectures": None, "speculators_model_type": "eagle"}, NO_HEAD),
        *(({**EAGLE, "transformer_layer_config": inner}, NO_LAYER) for inner in (7, None, {})),
    ],
)
def test_a_config_of_no_known_layout_is_no_head(raw: dict[str, Any], text: str) -> None:
    with pytest.raises(CheckpointError, match=text):
        parse_draft_config(raw, 24)


@pytest.mark.parametrize(
    ("top", "layer", "text"),
    [
        ({}, {"hidden_size": 32}, "takes hidden states of size 32, but the model's have 64"),
        ({}, {"vocab_size": 501}, "for a vocabulary of 501 ids, but the model has 500"),
        ({}, {"num_hidden_layers": 4}, "'num_hidden_layers' is 4; only 1 is supported"),
        ({}, {"hidden_act": "gelu"}, "'hidden_act' is 'gelu'; only 'silu' is supported"),
        ({}, {"head_dim": 7}, "head_dim must be even"),
        ({}, {"num_attention_heads": 3}, "must be a multiple of num_key_value_heads"),
        ({}, {"intermediate_size": 0}, "'intermediate_size' must be at least 1"),
        ({}, {"intermediate_size": None}, "'intermediate_size' is missing"),
        ({}, {ROPE: {"rope_type": "dynamic"}}, "the rope type is 'dynamic'"),
        ({}, {ROPE: {"rope_type": "llama3", "factor": 8.0}}, "'original_max_position_embeddings'"),
        ({STATES: [1, 2, 5]}, {}, "states after layer 5, but the model has 3 layers"),
        ({STATES: [2, 1, 3]}, {}, "must be ascending layers, not [2, 1, 3]"),
        ({STATES: "all"}, {}, "must be a list of layers, not 'all'"),
        ({"fc_norm": True}, {}, "norm_before_fc and fc_norm exclude each other"),
        ({"parallel_draft_step": 4}, {}, "'parallel_draft_step' is 4; only 1 is supported"),
        ({"target_hidden_size": 48}, {}, "takes hidden states of size 48"),
        ({"draft_vocab_size": 41}, {}, "'lm_head.weight' has shape 40×64"),
    ],
)
def test_another_shape_is_refused(
    model: GptOss, tmp_path: Path, config: ModelConfig, top: dict[str, Any], layer: dict[str, Any], text: str
) -> None:
    raw = speculators_config(config)
    folder = write_head(tmp_path, changed_layer(raw | top, **layer), random_tensors(raw))
    message = error_of(model, folder)
    assert str(folder) in message
    assert text in message


def test_a_tensor_that_is_missing_or_wrong_is_named(
    model: GptOss, tmp_path: Path, config: ModelConfig
) -> None:
    raw, queries = speculators_config(config), "layers.0.self_attn.q_proj.weight"
    names = ("fc.weight", "input_norm.weight", "layers.0.hidden_norm.weight", "lm_head.weight", "d2t")
    texts = {name: f"the tensor {name!r} is missing" for name in names}
    for name, text in (texts | {queries: f"neither {queries!r} nor 'midlayer."}).items():
        tensors = {key: tensor for key, tensor in random_tensors(raw).items() if key != name}
        assert text in error_of(model, write_head(tmp_path / name, raw, tensors))
    tensors = random_tensors(raw)
    tensors["d2t"][-1] = 500
    message = error_of(model, write_head(tmp_path / "wrong", raw, tensors))
    assert "'d2t' leads to ids outside of the vocabulary of 500" in message


def test_a_head_of_another_size_needs_an_embedding_and_a_vocabulary_of_its_own(
    model: GptOss, tmp_path: Path, config: ModelConfig
) -> None:
    raw = changed_layer(speculators_config(config, target_hidden_size=64), hidden_size=32)
    tensors, embedding = random_tensors(raw), {"embed_tokens.weight": torch.randn(500, 32)}
    message = error_of(model, write_head(tmp_path / "without", raw, tensors))
    assert "'embed_tokens.weight' is missing, and the model's own embedding has 64 columns" in message
    load_draft_head(str(write_head(tmp_path / "with", raw, tensors | embedding)), model)
    raw = llama_config(config, hidden_size=32, target_hidden_size=64)
    message = error_of(model, write_head(tmp_path / "shared", raw, random_tensors(raw) | embedding))
    assert "a head without a vocabulary of its own must have the model's hidden size" in message


def test_names_may_begin_with_model(model: GptOss, tmp_path: Path, config: ModelConfig) -> None:
    raw = llama_config(config)
    tensors = {f"model.{name}": tensor for name, tensor in random_tensors(raw).items()}
    assert load_draft_head(str(write_head(tmp_path, raw, tensors)), model).states == (1, 2, 3)


def test_a_config_that_names_no_states_means_the_usual_ones(config: ModelConfig) -> None:
    raw = llama_config(config, eagle_config={})
    assert parse_draft_config(raw, 24).states == (2, 12, 21)
    assert parse_draft_config(raw, 36).states == (2, 18, 33)


def test_a_model_of_windows_alone_has_no_place_for_a_head(tmp_path: Path, config: ModelConfig) -> None:
    windows = replace(config, sliding_layers=(True,) * config.layers)
    checkpoint = write_random_checkpoint(tmp_path / "model", windows, seed=1)
    model = load_model(checkpoint, device=CPU)
    folder = write_head(tmp_path / "head", speculators_config(config))
    assert "needs a model with full-attention layers" in error_of(model, folder)


def test_a_shape_that_no_kernel_takes_is_refused_on_a_gpu(
    model: GptOss, tmp_path: Path, config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, fitting = (
        write_head(tmp_path / str(size), changed_layer(speculators_config(config), head_dim=size))
        for size in (24, 16)
    )
    load_draft_head(str(odd), model)
    monkeypatch.setattr("inference.drafting.loading.runs_kernels", lambda device: True)
    assert "head_dim is 24; on a GPU only powers of two from 16" in error_of(model, odd)
    load_draft_head(str(fitting), model)


@pytest.mark.parametrize("name", ["llama:http://127.0.0.1:1", "scripted:answers.json"])
def test_an_engine_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="eagle:heads/a has no effect here"):
        inference.load(name, options=EngineOptions(speculation="eagle:heads/a"))


def test_published_configs_are_read(config: ModelConfig) -> None:
    """Both layouts, with the fields that their authors write."""
    for layout, is_llama in ((speculators_config, False), (llama_config, True)):
        found = parse_draft_config(layout(config), config.layers)
        assert (found.states, found.draft_vocab) == ((1, 2, 3), None if is_llama else 40)
        assert found.rope.by_turns is is_llama
        assert found.norm_before_fc is found.norm_before_residual is not is_llama
