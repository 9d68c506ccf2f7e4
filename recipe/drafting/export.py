"""Writes a trained head as the `speculators` package publishes heads: config.json and safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from inference.config import ModelConfig
from recipe.drafting.network import EPS, THETA, HeadInTraining


def write_head(folder: Path, head: HeadInTraining, ids: Tensor, model: ModelConfig) -> None:
    """`ids`: the model's id of each of the head's rows."""
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(head, len(ids), model)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {name: tensor.detach().bfloat16().contiguous() for name, tensor in _named(head).items()}
    tensors["d2t"] = ids - torch.arange(len(ids))
    tensors["t2d"] = torch.zeros(model.vocab_size, dtype=torch.bool).index_fill_(0, ids, True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _named(head: HeadInTraining) -> dict[str, Tensor]:
    at = "layers.0."
    return {
        "fc.weight": head.fc.weight,
        "input_norm.weight": head.states_norm,
        f"{at}input_layernorm.weight": head.token_norm,
        f"{at}hidden_norm.weight": head.feature_norm,
        f"{at}self_attn.q_proj.weight": head.q.weight,
        f"{at}self_attn.k_proj.weight": head.k.weight,
        f"{at}self_attn.v_proj.weight": head.v.weight,
        f"{at}self_attn.o_proj.weight": head.out.weight,
        f"{at}post_attention_layernorm.weight": head.mlp_norm,
        f"{at}mlp.gate_proj.weight": head.gate.weight,
        f"{at}mlp.up_proj.weight": head.up.weight,
        f"{at}mlp.down_proj.weight": head.down.weight,
        "norm.weight": head.norm,
        "lm_head.weight": head.head.weight,
    }


def _config(head: HeadInTraining, rows: int, model: ModelConfig) -> dict[str, Any]:
    shape = head.shape
    return {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": rows,
        "eagle_aux_hidden_state_layer_ids": list(shape.states),
        "norm_before_fc": True,
        "norm_before_residual": True,
        "speculators_config": {"algorithm": "eagle3"},
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {
            "attention_bias": False,
            "head_dim": shape.head_dim,
            "hidden_act": "silu",
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "max_position_embeddings": model.context_length,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": shape.heads,
            "num_hidden_layers": 1,
            "num_key_value_heads": shape.heads,
            "rms_norm_eps": EPS,
            "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
            "vocab_size": model.vocab_size,
        },
    }
