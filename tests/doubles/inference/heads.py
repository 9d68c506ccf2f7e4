"""Draft heads with random weights, under the names and in the layouts that are published for gpt-oss."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inference.config import ModelConfig
from tests.doubles.inference.random_checkpoint import write_random_checkpoint

_LAYER: dict[str, Any] = json.loads("""{
    "attention_bias": false, "head_dim": 8, "hidden_act": "silu", "intermediate_size": 48, "mlp_bias": false,
    "max_position_embeddings": 1024, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 1,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5
}""")
_SPECULATORS: dict[str, Any] = json.loads("""{
    "architectures": ["Eagle3Speculator"], "norm_before_fc": true, "norm_before_residual": true,
    "speculators_config": {
        "algorithm": "eagle3", "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"architectures": ["GptOssForCausalLM"], "name_or_path": "openai/gpt-oss-20b"}
    },
    "speculators_model_type": "eagle3", "target_hidden_size": null
}""")
_LLAMA: dict[str, Any] = json.loads("""{
    "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": null,
    "eagle_config": {
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3], "use_aux_hidden_state": true,
        "use_input_layernorm_in_first_layer": true, "use_last_layernorm": true, "use_mtp_layernorm": false,
        "next_layer_regular": true, "parallel_draft_step": 1
    },
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 32
    }
}""")


def speculators_config(model: ModelConfig, draft_vocab: int = 40, **changes: Any) -> dict[str, Any]:
    """As in RedHatAI/gpt-oss-20b-speculator.eagle3, scaled down."""
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    layer = {**layer_config(model), "rope_parameters": rope}
    states = {"draft_vocab_size": draft_vocab, "eagle_aux_hidden_state_layer_ids": [1, 2, model.layers]}
    return copy.deepcopy(_SPECULATORS) | states | {"transformer_layer_config": layer} | changes


def changed_layer(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return config | {"transformer_layer_config": config["transformer_layer_config"] | changes}


def llama_config(model: ModelConfig, **changes: Any) -> dict[str, Any]:
    """As in nvidia/gpt-oss-120b-Eagle3-long-context, scaled down: without a vocabulary of its own."""
    return copy.deepcopy(_LLAMA) | layer_config(model) | changes


def layer_config(model: ModelConfig) -> dict[str, Any]:
    return _LAYER | {"hidden_size": model.hidden, "vocab_size": model.vocab_size}


def write_head(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> Path:
    """`tensors`: random ones if not given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    named = random_tensors(config) if tensors is None else tensors
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def random_tensors(config: dict[str, Any], seed: int = 7) -> dict[str, Tensor]:
    """All that the config names, in the layout's own names."""
    layer = config.get("transformer_layer_config", config)
    own = config | config.get("eagle_config", {})
    at = "layers.0." if "transformer_layer_config" in config else "midlayer."
    hidden, inner, size = layer["hidden_size"], layer["intermediate_size"], layer["head_dim"]
    wide, kv = layer["num_attention_heads"] * size, layer["num_key_value_heads"] * size
    taken = own.get("target_hidden_size") or hidden
    attended = (("q", wide), ("k", kv), ("v", kv))
    shapes: dict[str, tuple[int, ...]] = {
        **{f"{at}self_attn.{part}_proj.weight": (n, 2 * hidden) for part, n in attended},
        f"{at}self_attn.o_proj.weight": (hidden, wide),
        **{f"{at}mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")},
        f"{at}mlp.down_proj.weight": (hidden, inner),
        **{f"{at}{name}.weight": (hidden,) for name in ("input_layernorm", "hidden_norm")},
        f"{at}post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    if layer["attention_bias"]:
        shapes |= {f"{at}self_attn.{part}_proj.bias": (n,) for part, n in attended}
    count = len(own.get("eagle_aux_hidden_state_layer_ids") or (0, 0, 0))
    if own.get("use_aux_hidden_state", True):
        shapes["fc.weight"] = (hidden, count * taken)
        shapes |= {"input_norm.weight": (count * taken,)} if own.get("norm_before_fc") else {}
        shapes |= {f"fc_norm.{at}.weight": (taken,) for at in range(count if own.get("fc_norm") else 0)}
    vocab = config["draft_vocab_size"]
    if vocab is not None:
        shapes["lm_head.weight"] = (vocab, hidden)
    draw = torch.Generator().manual_seed(seed)
    named = {name: _drawn(shape, draw) for name, shape in shapes.items()}
    if vocab is not None and vocab < layer["vocab_size"]:
        ids = torch.randperm(layer["vocab_size"], generator=draw)[:vocab].sort().values
        named["d2t"] = ids - torch.arange(vocab)
        named["t2d"] = torch.zeros(layer["vocab_size"], dtype=torch.bool).index_fill_(0, ids, True)
    return named


def _drawn(shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return (1 + 0.1 * torch.randn(shape, generator=draw)).bfloat16()
    return (torch.randn(shape, generator=draw) * shape[1] ** -0.5).bfloat16()


def write_repeating_model(folder: Path, config: ModelConfig, share: float = 0.0) -> Path:
    """A random model whose next token depends on the newest one alone or, with a `share` above 0, mostly."""
    write_random_checkpoint(folder, config, seed=3, experts="bf16")
    named = load_file(folder / "model.safetensors")
    for name, tensor in named.items():
        if ".o_proj." in name or ".down_proj" in name:
            named[name] = tensor * share
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_right_head(folder: Path, checkpoint: Path, known: int | None = None) -> Path:
    """The head that is right about `write_repeating_model`: its output is the newest token's embedding.

    `known`: it knows only this many tokens.
    """
    model = json.loads((checkpoint / "config.json").read_text("utf-8"))
    weights = load_file(checkpoint / "model.safetensors")
    hidden = model["hidden_size"]
    heads = hidden // 8
    config = _LAYER | {
        "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": known,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "hidden_size": hidden, "intermediate_size": 16,
        "num_attention_heads": heads, "num_key_value_heads": heads, "layer_types": ["sliding_attention"],
        "sliding_window": 1, "norm_before_residual": True, "rms_norm_eps": model["rms_norm_eps"],
        "rope_theta": 10_000.0, "vocab_size": model["vocab_size"],
    }  # fmt: skip
    named = random_tensors(config)
    whole = torch.eye(hidden)
    named |= {
        "midlayer.hidden_norm.weight": torch.zeros(hidden),
        "midlayer.self_attn.v_proj.weight": torch.cat((whole, torch.zeros(hidden, hidden)), 1),
        "midlayer.self_attn.o_proj.weight": whole,
        "midlayer.mlp.down_proj.weight": torch.zeros(hidden, 16),
        "midlayer.input_layernorm.weight": torch.ones(hidden),
        "norm.weight": weights["model.norm.weight"],
    }
    if known is not None:
        ids = named["d2t"] + torch.arange(known)
        named["lm_head.weight"] = weights["lm_head.weight"][ids]
    return write_head(folder, config, named)
