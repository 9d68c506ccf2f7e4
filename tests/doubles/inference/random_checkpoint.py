"""Writes checkpoints with random weights, of any shape and in every layout that the loader reads.

The same seed gives the same weights in every layout, so that tests can compare the layouts. Sinks, biases
and norms are random too, so that no zero or one hides a mistake.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from inference.config import ModelConfig, RopeConfig
from inference.models.layouts import _NAMES, MXFP4_BLOCK, check_block_sizes
from inference.ops.reference import dequantise_mxfp4

Layout = Literal["hf", "original"]
ExpertKind = Literal["mxfp4", "bf16"]

STOP_IDS = (200002, 199999, 200012)
PADDING = 199999
INDEX = "model.safetensors.index.json"
# The whole vocabulary, and little else: 13 MB, made in an instant.
SMALLEST = ModelConfig(
    layers=1, hidden=32, intermediate=32, vocab_size=201_088, heads=2, kv_heads=1, head_dim=16, experts=2,
    experts_per_token=1, sliding_window=16, sliding_layers=(True,), context_length=2_048, rope=RopeConfig(),
)  # fmt: skip


def write_random_checkpoint(
    path: Path,
    config: ModelConfig,
    seed: int = 0,
    *,
    layout: Layout = "hf",
    experts: ExpertKind = "mxfp4",
    shards: int = 1,
) -> Path:
    check_block_sizes(config)
    path.mkdir(parents=True, exist_ok=True)
    named = dict(_weights(config, seed, experts))
    if layout == "hf":
        named = dict(pair for item in named.items() for pair in _hugging_face(*item, config))
    raw = hugging_face_json(config, experts) if layout == "hf" else _original_json(config)
    (path / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    if layout == "hf":
        generation: dict[str, Any] = {"do_sample": True}
        if config.vocab_size > max(STOP_IDS):
            generation |= {"eos_token_id": list(STOP_IDS), "pad_token_id": PADDING}
        (path / "generation_config.json").write_text(json.dumps(generation) + "\n", encoding="utf-8")
    _save(path, named, shards)
    return path


def _weights(config: ModelConfig, seed: int, experts: ExpertKind) -> Iterator[tuple[str, Tensor]]:
    """Weights by the original layout's names; experts' weights are E × rows × columns."""
    draw = _Draw(seed)
    hidden, queries, keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    yield "embedding.weight", draw.normal(config.vocab_size, hidden, scale=1.0)
    for layer in range(config.layers):
        at = f"block.{layer}."
        yield at + "attn.norm.scale", 1 + draw.normal(hidden, scale=0.1)
        yield at + "attn.qkv.weight", draw.normal(queries + 2 * keys, hidden, scale=hidden**-0.5)
        yield at + "attn.qkv.bias", draw.normal(queries + 2 * keys, scale=0.3)
        yield at + "attn.sinks", draw.normal(config.heads, scale=1.0)
        yield at + "attn.out.weight", draw.normal(hidden, queries, scale=queries**-0.5)
        yield at + "attn.out.bias", draw.normal(hidden, scale=0.1)
        yield at + "mlp.norm.scale", 1 + draw.normal(hidden, scale=0.1)
        yield at + "mlp.gate.weight", draw.normal(config.experts, hidden, scale=hidden**-0.5)
        yield at + "mlp.gate.bias", draw.normal(config.experts, scale=0.3)
        products = ("mlp1", 2 * config.intermediate, hidden), ("mlp2", hidden, config.intermediate)
        for name, rows, columns in products:
            yield from draw.expert(f"{at}mlp.{name}_weight", (config.experts, rows, columns), experts)
            yield f"{at}mlp.{name}_bias", draw.normal(config.experts, rows, scale=0.1)
    yield "norm.scale", 1 + draw.normal(hidden, scale=0.1)
    yield "unembedding.weight", draw.normal(config.vocab_size, hidden, scale=2 * hidden**-0.5)


class _Draw:
    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float) -> Tensor:
        return torch.randn(*shape, generator=self._generator).mul_(scale).bfloat16()

    def expert(
        self, name: str, shape: tuple[int, int, int], kind: ExpertKind
    ) -> Iterator[tuple[str, Tensor]]:
        """Always drawn as MXFP4, whose values bf16 holds exactly."""
        experts, rows, columns = shape
        size = (experts, rows, columns // MXFP4_BLOCK)
        blocks = torch.randint(0, 256, (*size, 16), generator=self._generator, dtype=torch.uint8)
        # Codes have a spread of about 3; 2^-6 and 2^-5 bring rows near the usual 1/√columns.
        scales = torch.randint(121, 123, size, generator=self._generator, dtype=torch.uint8)
        if kind == "mxfp4":
            yield f"{name}.blocks", blocks
            yield f"{name}.scales", scales
        else:
            yield name, dequantise_mxfp4(blocks, scales, torch.bfloat16)


_THEIRS = dict(_NAMES.values())  # transformers reads them too (tests/inference/models/test_numerics)


def _hugging_face(name: str, tensor: Tensor, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    if name in _THEIRS:
        yield _THEIRS[name], tensor
        return
    _, layer, inner = name.split(".", 2)
    prefix = f"model.layers.{layer}."
    if inner.startswith("attn.qkv."):
        keys = config.kv_heads * config.head_dim
        parts = torch.split(tensor, [config.heads * config.head_dim, keys, keys])
        for part, rows in zip("qkv", parts, strict=True):
            yield f"{prefix}self_attn.{part}_proj.{inner.removeprefix('attn.qkv.')}", rows.contiguous()
    elif inner in ("mlp.mlp1_weight", "mlp.mlp2_weight"):
        yield prefix + _THEIRS[inner], tensor.transpose(1, 2).contiguous()
    elif inner.startswith("mlp.mlp"):
        product, _, kind = inner.replace("_bias", "_weight.bias").rpartition(".")
        yield f"{prefix}{_THEIRS[product]}_{kind}", tensor
    elif inner in _THEIRS:
        yield prefix + _THEIRS[inner], tensor
    else:
        part, _, kind = inner.rpartition(".")
        yield f"{prefix}{_THEIRS[part]}.{kind}", tensor


def _save(path: Path, named: dict[str, Tensor], shards: int) -> None:
    if shards == 1:
        save_file(named, path / "model.safetensors", metadata={"format": "pt"})
        return
    files = [f"model-{at + 1:05}-of-{shards:05}.safetensors" for at in range(shards)]
    weight_map = {name: files[at * shards // len(named)] for at, name in enumerate(named)}
    for file in files:
        part = {name: named[name] for name, home in weight_map.items() if home == file}
        save_file(part, path / file, metadata={"format": "pt"})
    total = sum(tensor.nbytes for tensor in named.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shared_json(config: ModelConfig) -> dict[str, Any]:
    return {
        "num_hidden_layers": config.layers, "vocab_size": config.vocab_size, "hidden_size": config.hidden,
        "intermediate_size": config.intermediate, "swiglu_limit": config.swiglu_limit,
        "head_dim": config.head_dim, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "sliding_window": config.sliding_window,
        "rope_theta": config.rope.theta,
    }  # fmt: skip


def _original_json(config: ModelConfig) -> dict[str, Any]:
    rope = config.rope
    return _shared_json(config) | {
        "num_experts": config.experts, "experts_per_token": config.experts_per_token,
        "initial_context_length": rope.original_context, "rope_scaling_factor": rope.factor,
        "rope_ntk_alpha": rope.beta_slow, "rope_ntk_beta": rope.beta_fast,
    }  # fmt: skip


def hugging_face_json(config: ModelConfig, experts: ExpertKind) -> dict[str, Any]:
    rope = config.rope
    kinds = {True: "sliding_attention", False: "full_attention"}
    raw = _shared_json(config) | {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16",
        "num_local_experts": config.experts, "num_experts_per_tok": config.experts_per_token,
        "layer_types": [kinds[sliding] for sliding in config.sliding_layers],
        "rope_scaling": {
            "rope_type": "yarn", "factor": rope.factor, "truncate": rope.truncate,
            "beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow,
            "original_max_position_embeddings": rope.original_context,
        },
        "max_position_embeddings": config.context_length, "rms_norm_eps": config.norm_eps,
        "attention_bias": True, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip
    if config.vocab_size > max(STOP_IDS):
        raw |= {"eos_token_id": STOP_IDS[0], "pad_token_id": PADDING}
    if experts == "mxfp4":
        kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
        raw["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    return raw
