"""Both kinds of config.json, as published for the 20b model, and the errors of bad ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from inference.config import ModelConfig, parse_config, read_config
from inference.engine import CheckpointError
from inference.ops.rope import rope_frequencies

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
    assert parse_config(ORIGINAL) == parse_config(ORIGINAL | {"brand_new": 1}) == config
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
