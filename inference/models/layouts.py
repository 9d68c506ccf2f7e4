"""The tensors of a checkpoint by the parts of the model, for both published layouts, as they are stored."""

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.engine import CheckpointError
from inference.models.tensor_files import TensorSource

MXFP4_BLOCK = 32
Packed = tuple[Tensor, Tensor]  # blocks, scales

# Each part, by its name in the original layout, and in Hugging Face's.
_NAMES = {
    "layer": ("block.{}.", "model.layers.{}."),
    "embedding": ("embedding.weight", "model.embed_tokens.weight"),
    "norm": ("norm.scale", "model.norm.weight"),
    "head": ("unembedding.weight", "lm_head.weight"),
    "attention_norm": ("attn.norm.scale", "input_layernorm.weight"),
    "sinks": ("attn.sinks", "self_attn.sinks"),
    "out": ("attn.out", "self_attn.o_proj"),
    "mlp_norm": ("mlp.norm.scale", "post_attention_layernorm.weight"),
    "router": ("mlp.gate", "mlp.router"),
    "first": ("mlp.mlp1_weight", "mlp.experts.gate_up_proj"),
    "second": ("mlp.mlp2_weight", "mlp.experts.down_proj"),
    "joint": (".", "_"),
}


class Layout:
    def __init__(self, files: TensorSource, config: ModelConfig) -> None:
        self._files, self._config = files, config
        self._is_original = _NAMES["embedding"][0] in files
        self._names = {part: names[not self._is_original] for part, names in _NAMES.items()}
        if self._names["embedding"] not in files:
            raise CheckpointError(
                f"{files.folder} holds no gpt-oss model: neither 'embedding.weight' (original layout) nor "
                "'model.embed_tokens.weight' (the Hugging Face layout) is among its tensors."
            )

    def end(self, part: str, *shape: int) -> Tensor:
        """The `embedding`, the last `norm` or the `head`, which may be the embedding."""
        own = "embedding" if part == "head" and self._config.tied_head else part
        return self._files.take(self._names[own], shape)

    def take(self, layer: int, part: str, *shape: int) -> Tensor:
        """A tensor of a layer; `part` is a name of the tables, perhaps with `.weight` or `.bias` after it."""
        name, dot, kind = part.partition(".")
        return self._files.take(f"{self._names['layer'].format(layer)}{self._names[name]}{dot}{kind}", shape)

    def qkv(self, layer: int, kind: str, *columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of the queries, keys and values. `kind`: weight or bias."""
        config, prefix = self._config, self._names["layer"].format(layer)
        kv = config.kv_heads * config.head_dim
        sizes = [config.heads * config.head_dim, kv, kv]
        if self._is_original:
            joined = self._files.take(f"{prefix}attn.qkv.{kind}", (sum(sizes), *columns))
            q, k, v = torch.split(joined, sizes)
        else:
            q, k, v = (
                self._files.take(f"{prefix}self_attn.{part}_proj.{kind}", (rows, *columns))
                for part, rows in zip("qkv", sizes, strict=True)
            )
        return q, k, v

    # The experts' products: `first` has rows of gate and linear in turns --------------------------------

    def is_packed(self, layer: int, part: str) -> bool:
        """Whether the weights are MXFP4. Raises `CheckpointError` for sizes that are no whole blocks."""
        if f"{self._expert(layer, part)}{self._names['joint']}blocks" not in self._files:
            return False
        check_block_sizes(self._config)
        return True

    def packed(self, layer: int, part: str) -> Packed:
        """E × rows × blocks × 16, and E × rows × blocks."""
        name, (experts, rows, columns) = self._expert(layer, part), self._shape(part)
        shape = (experts, rows, columns // MXFP4_BLOCK)
        joint = self._names["joint"]
        blocks = self._files.take(f"{name}{joint}blocks", (*shape, 16), bytes_only=True)
        return blocks, self._files.take(f"{name}{joint}scales", shape, bytes_only=True)

    def plain(self, layer: int, part: str) -> Tensor:
        """E × rows × columns as a view; Hugging Face stores the last two transposed."""
        name, (experts, rows, columns) = self._expert(layer, part), self._shape(part)
        if self._is_original:
            return self._files.take(name, (experts, rows, columns))
        return self._files.take(name, (experts, columns, rows)).transpose(1, 2)

    def expert_biases(self, layer: int, part: str) -> Tensor:
        """E × rows. The original's are mlp1_bias and mlp2_bias."""
        name = self._expert(layer, part).removesuffix("_weight") + "_bias"
        return self._files.take(name, self._shape(part)[:2])

    def _expert(self, layer: int, part: str) -> str:
        return self._names["layer"].format(layer) + self._names[part]

    def _shape(self, part: str) -> tuple[int, int, int]:
        config = self._config
        if part == "first":
            return config.experts, 2 * config.intermediate, config.hidden
        return config.experts, config.hidden, config.intermediate


def check_block_sizes(config: ModelConfig) -> None:
    for name, size in (("hidden_size", config.hidden), ("intermediate_size", config.intermediate)):
        if size % MXFP4_BLOCK:
            raise CheckpointError(
                f"MXFP4 experts have blocks of {MXFP4_BLOCK}, but {name} is {size}: not a multiple."
            )
