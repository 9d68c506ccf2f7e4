"""The gpt-oss model: takes token ids and a memory of keys and values, and returns logits.

Config and weights alone drive it, so that any shape runs through the same code. It must not know where they
came from, nor sampling, threads or requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from inference.config import ModelConfig, read_config
from inference.models.kv_memory import KVCache, PagedMemory
from inference.models.tensor_files import TensorFiles, TensorSource
from inference.models.weights import AS_COMPUTED, Weights, find_checkpoint, load_weights
from inference.ops import reference
from inference.ops.device import ops_for
from inference.ops.halves import HalfRows
from inference.ops.pages import Pages
from inference.ops.rope import Rotations
from inference.ops.scaled import FP8
from inference.options import Precision


@dataclass(slots=True)
class HiddenStates:
    """The rows of a step after some numbers of layers, for a draft head: 0 is the embedding."""

    after: tuple[int, ...]  # ascending
    found: list[Tensor] = field(default_factory=list)  # T×H each

    def pass_by(self, layers: int, x: Tensor) -> None:
        if layers in self.after:
            self.found.append(x)


class GptOss:
    def __init__(self, config: ModelConfig, weights: Weights, precision: Precision = AS_COMPUTED) -> None:
        self.config, self.precision = config, precision
        self._weights = weights
        self._kinds = [config.kind(layer) for layer in range(config.layers)]
        self.device = weights.norm.device
        self.dtype = weights.layers[0].router.dtype  # of activations
        self._ops = ops_for(self.device)
        self._rotations = Rotations(config.rope, config.head_dim, config.context_length, self.device)

    @property
    def kv_dtype(self) -> torch.dtype:
        """The type of keys and values."""
        return FP8 if self.precision.kv == "fp8" else self.dtype

    @property
    def rounding(self) -> float | None:
        """With FP8 weights, their relative error."""
        return self._weights.rounding

    @property
    def waits_for_device(self) -> bool:
        """Whether a step reads from the device midway, so that it cannot be recorded."""
        return any(layer.experts.waits_for_device for layer in self._weights.layers)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        memory: PagedMemory,
        pages: Sequence[Pages],
        hidden: HiddenStates | None = None,
    ) -> Tensor:
        """Returns T×H. `pages`: one for each of the config's windows. Keeps the rows that `hidden` names."""
        config, eps = self.config, self.config.norm_eps
        rotation = self._rotations.at(positions)
        x = self.embed(tokens)
        for layer, weights in enumerate(self._weights.layers):
            if hidden is not None:
                hidden.pass_by(layer, x)
            keys, values = memory.layers[layer]
            own = pages[self._kinds[layer]]
            query = self._ops.qkv(
                x, weights.attention_norm, eps, weights.qkv, weights.qkv_bias, *rotation, keys, values, own
            )
            attended = self._ops.paged_attention(query, keys, values, weights.sinks, own)
            x = self._ops.project_out(attended, weights.out, weights.out_bias, x)
            router, chosen = (weights.router, weights.router_bias), config.experts_per_token
            x = self._ops.experts_block(x, weights.mlp_norm, eps, *router, chosen, weights.experts)
        if hidden is not None:
            hidden.pass_by(config.layers, x)
        return x

    def embed(self, tokens: Tensor) -> Tensor:
        """T×H: the rows that the first layer takes."""
        return self._weights.embedding[tokens].to(self.dtype)

    def normed(self, x: Tensor) -> Tensor:
        """Rows of `forward` as the head takes them."""
        return reference.rms_norm(x, self._weights.norm, self.config.norm_eps)

    @torch.inference_mode()
    def logits(self, x: Tensor, norm: Tensor | None = None) -> Tensor:
        """R×V, float32, from rows of `forward`. The head dominates a step: pass only the rows you need.
        `norm` replaces the model's own, for the rows of a draft head that shares the model's head."""
        head, eps = self._weights.head, self.config.norm_eps
        norm = self._weights.norm if norm is None else norm
        if isinstance(head, HalfRows):
            return head.product(reference.rms_norm(x, norm, eps))
        logits: Tensor = self._ops.head_logits(x, norm, eps, head)
        return logits

    # One sequence alone -------------------------------------------------------------------------------

    def new_cache(self, most: int = 1024) -> KVCache:
        """`most`: of its positions."""
        return KVCache(self.config, self.device, self.kv_dtype, most)

    def all_logits(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """Reads further tokens; returns T × V, float32."""
        pages = cache.pages(len(tokens))
        positions = torch.arange(cache.length, cache.length + len(tokens), device=self.device)
        x = self.forward(torch.tensor(tokens, device=self.device), positions, cache.memory, pages)
        cache.length += len(tokens)
        return self.logits(x)


def build_model(
    source: TensorSource,
    config: ModelConfig,
    device: torch.device,
    *,
    precision: Precision = AS_COMPUTED,
    progress: bool | None = None,
) -> GptOss:
    """In float32 on the CPU, where bf16 products are far slower, else in bf16. Where no kernel reads FP8,
    weights in FP8 are the floats that it stands for: the same results, no gain."""
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    weights = load_weights(source, config, device=device, dtype=dtype, precision=precision, progress=progress)
    return GptOss(config, weights, precision)


def load_model(
    folder: Path,
    *,
    device: torch.device | None = None,
    context: int | None = None,
    progress: bool | None = None,
    precision: Precision = AS_COMPUTED,
    given: str | None = None,
) -> GptOss:
    """The model of a checkpoint folder. `given` is its name as the user wrote it, for errors."""
    checkpoint = find_checkpoint(folder)
    config = read_config(checkpoint / "config.json").with_context(context, given or checkpoint)
    on = device if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return build_model(TensorFiles(checkpoint), config, on, precision=precision, progress=progress)
