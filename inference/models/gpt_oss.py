"""The gpt-oss model: token ids and a KV cache in, logits out.

Driven by config and weights alone, so that any shape runs through the same code; it does not know where they
came from, nor anything of sampling, threads or requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine import CheckpointError
from inference.models.config import ModelConfig, read_config
from inference.models.kv_cache import KVCache, LayerCache
from inference.models.weights import LayerWeights, Weights, find_checkpoint, load_weights
from inference.ops import reference as ops


class GptOss:
    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self._weights = weights
        self._device, self._dtype = weights.norm.device, weights.head.dtype
        cos, sin = ops.rope_tables(config.rope, config.head_dim, config.context_length)
        self._cos, self._sin = cos.to(self._device), sin.to(self._device)

    @property
    def device(self) -> torch.device:
        return self._device

    def new_cache(self) -> KVCache:
        return KVCache(self.config, self._device, self._dtype)

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], cache: KVCache) -> None:
        """Takes in a part of a prompt whose logits nobody needs."""
        self._hidden(tokens, cache)

    @torch.inference_mode()
    def next_logits(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """The logits (V, float32) after the last of these tokens: the head, which dominates, runs once."""
        return self._logits(self._hidden(tokens, cache)[-1:])[0]

    @torch.inference_mode()
    def all_logits(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """T × V, float32."""
        return self._logits(self._hidden(tokens, cache))

    def _hidden(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        start, count = cache.length, len(tokens)
        positions = None if count == 1 else torch.arange(start, start + count, device=self._device)
        cos, sin = self._cos[start : start + count], self._sin[start : start + count]
        ids = torch.tensor(tokens, device=self._device)
        x = self._weights.embedding[ids].to(self._dtype)
        for layer, layer_cache in enumerate(cache):
            weights = self._weights.layers[layer]
            x = x + self._attention(x, weights, layer_cache, start, positions, cos, sin, layer)
            x = x + self._experts(x, weights)
        cache.length = start + count
        return x

    def _attention(
        self,
        x: Tensor,
        weights: LayerWeights,
        cache: LayerCache,
        start: int,
        positions: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        layer: int,
    ) -> Tensor:
        config = self.config
        normed = ops.rms_norm(x, weights.attention_norm, config.norm_eps)
        heads = functional.linear(normed, weights.qkv, weights.qkv_bias).view(len(x), -1, config.head_dim)
        rotated = ops.apply_rope(heads[:, : config.heads + config.kv_heads], cos, sin)
        keys, values, key_positions = cache.extend(
            start, rotated[:, config.heads :], heads[:, config.heads + config.kv_heads :]
        )
        seen = ops.attention(
            rotated[:, : config.heads],
            keys,
            values,
            weights.sinks,
            positions,
            key_positions,
            config.window_of(layer),
        )
        return functional.linear(seen, weights.out, weights.out_bias)

    def _experts(self, x: Tensor, weights: LayerWeights) -> Tensor:
        normed = ops.rms_norm(x, weights.mlp_norm, self.config.norm_eps)
        chosen, shares = ops.route(normed, weights.router, weights.router_bias, self.config.experts_per_token)
        return weights.experts.forward(normed, chosen, shares)

    def _logits(self, x: Tensor) -> Tensor:
        normed = ops.rms_norm(x, self._weights.norm, self.config.norm_eps)
        return (normed @ self._weights.head).float()


def load_model(
    folder: Path,
    *,
    device: torch.device | None = None,
    context: int | None = None,
    progress: bool | None = None,
    any_vocabulary: bool = False,
) -> GptOss:
    """The model of a checkpoint folder: float32 on the CPU, where bf16 products are far slower, else bf16.

    `any_vocabulary`: for tests, whose small models speak no Harmony.
    """
    found = find_checkpoint(folder)
    config = read_config(found / "config.json", any_vocabulary=any_vocabulary)
    if context is not None:
        if context > config.context_length:
            raise CheckpointError(
                f"The context asked for is {context} tokens; {found} was made for {config.context_length}."
            )
        config = replace(config, context_length=context)
    on = device if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float32 if on.type == "cpu" else torch.bfloat16
    return GptOss(config, load_weights(found, config, device=on, dtype=dtype, progress=progress))
