"""A checkpoint's tensors under llama.cpp's names and in its layouts, one at a time.

Takes either layout of a checkpoint's folder. Yields lazy tensors: a large checkpoint passes through memory
piece by piece. Weights keep their types (MXFP4 stays MXFP4); norms, biases, sinks and routers become float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.models.experts import MXFP4_BLOCK, check_block_sizes
from inference.models.tensor_files import TensorSource

F32, BF16, MXFP4 = "F32", "BF16", "MXFP4"
BYTES_OF_BLOCK = 17  # a scale, and 16 bytes of 32 values


@dataclass(frozen=True, slots=True)
class Exported:
    """One tensor: `make` returns an array of `shape`, float32 or the bytes of other types."""

    name: str
    kind: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * (4 if self.kind == F32 else 1)


def exported(files: TensorSource, config: ModelConfig) -> Iterator[Exported]:
    reader = _Exporter(files, config)
    yield from reader.ends()
    for layer in range(config.layers):
        yield from reader.layer(layer)


class _Exporter:
    def __init__(self, files: TensorSource, config: ModelConfig) -> None:
        self._files, self._config = files, config
        self._is_original = "embedding.weight" in files

    def ends(self) -> Iterator[Exported]:
        config = self._config
        shape = (config.vocab_size, config.hidden)
        names = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
        if self._is_original:
            names = ("embedding.weight", "norm.scale", "unembedding.weight")
        head = names[0] if config.tied_head else names[2]
        yield self._weight("token_embd.weight", names[0], shape)
        yield self._float("output_norm.weight", names[1], (config.hidden,))
        yield self._weight("output.weight", head, shape)

    def layer(self, layer: int) -> Iterator[Exported]:
        config, to = self._config, f"blk.{layer}."
        of = f"block.{layer}." if self._is_original else f"model.layers.{layer}."
        hidden, width = config.hidden, config.heads * config.head_dim
        names = _ORIGINAL if self._is_original else _HUGGING_FACE
        yield self._float(f"{to}attn_norm.weight", of + names["attn_norm"], (hidden,))
        yield from self._attention(to, of)
        yield self._weight(f"{to}attn_output.weight", of + names["out"] + ".weight", (hidden, width))
        if config.attention_bias:
            yield self._float(f"{to}attn_output.bias", of + names["out"] + ".bias", (hidden,))
        yield self._float(f"{to}attn_sinks.weight", of + names["sinks"], (config.heads,))
        yield self._float(f"{to}post_attention_norm.weight", of + names["mlp_norm"], (hidden,))
        router = of + names["router"]
        yield self._float(f"{to}ffn_gate_inp.weight", f"{router}.weight", (config.experts, hidden))
        yield self._float(f"{to}ffn_gate_inp.bias", f"{router}.bias", (config.experts,))
        yield from self._experts(to, of + names["first"], of + names["second"])

    def _attention(self, to: str, of: str) -> Iterator[Exported]:
        config = self._config
        width, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        total, begin = width + 2 * narrow, 0
        for part, rows in (("q", width), ("k", narrow), ("v", narrow)):
            name = f"{of}attn.qkv" if self._is_original else f"{of}self_attn.{part}_proj"
            stored = total if self._is_original else rows
            first = begin if self._is_original else 0
            cut = slice(first, first + rows)
            yield self._weight(f"{to}attn_{part}.weight", f"{name}.weight", (stored, config.hidden), cut)
            if config.attention_bias:
                yield self._float(f"{to}attn_{part}.bias", f"{name}.bias", (stored,), cut)
            begin += rows

    def _experts(self, to: str, first: str, second: str) -> Iterator[Exported]:
        """Gate and up are the even and the odd rows of one tensor."""
        config = self._config
        rows, width = config.intermediate, config.hidden
        halves = (("ffn_gate_exps", slice(0, None, 2)), ("ffn_up_exps", slice(1, None, 2)))
        for name, cut in halves:
            yield from self._expert(to + name, first, (2 * rows, width), rows, cut)
        yield from self._expert(f"{to}ffn_down_exps", second, (width, rows), width, slice(None))

    def _expert(self, to: str, of: str, stored: tuple[int, int], rows: int, cut: slice) -> Iterator[Exported]:
        experts = self._config.experts
        yield self._expert_weight(f"{to}.weight", of, stored, rows, cut)
        bias = f"{of.removesuffix('_weight')}_bias"

        def biases() -> np.ndarray:
            return _floats(self._files.take(bias, (experts, stored[0]))[:, cut])

        yield Exported(f"{to}.bias", F32, (experts, rows), biases)

    def _expert_weight(self, to: str, of: str, stored: tuple[int, int], rows: int, cut: slice) -> Exported:
        experts, width, files = self._config.experts, stored[1], self._files
        joint = "." if self._is_original else "_"
        if f"{of}{joint}blocks" in files:
            check_block_sizes(self._config)
            shape = (experts, stored[0], width // MXFP4_BLOCK)

            def packed() -> np.ndarray:
                blocks = files.take(f"{of}{joint}blocks", (*shape, 16), bytes_only=True)[:, cut]
                scales = files.take(f"{of}{joint}scales", shape, bytes_only=True)[:, cut]
                return mxfp4(blocks, scales)

            return Exported(to, MXFP4, (experts, rows, width // MXFP4_BLOCK * BYTES_OF_BLOCK), packed)

        def plain() -> np.ndarray:
            if self._is_original:
                return _bytes(files.take(of, (experts, *stored))[:, cut])
            return _bytes(files.take(of, (experts, width, stored[0])).transpose(1, 2)[:, cut])

        return Exported(to, BF16, (experts, rows, 2 * width), plain)

    def _weight(self, to: str, of: str, shape: tuple[int, int], cut: slice = slice(None)) -> Exported:
        rows = len(range(shape[0])[cut])
        return Exported(to, BF16, (rows, 2 * shape[1]), lambda: _bytes(self._files.take(of, shape)[cut]))

    def _float(self, to: str, of: str, shape: tuple[int, ...], cut: slice = slice(None)) -> Exported:
        kept = (len(range(shape[0])[cut]), *shape[1:])
        return Exported(to, F32, kept, lambda: _floats(self._files.take(of, shape)[cut]))


_ORIGINAL = {
    "attn_norm": "attn.norm.scale",
    "out": "attn.out",
    "sinks": "attn.sinks",
    "mlp_norm": "mlp.norm.scale",
    "router": "mlp.gate",
    "first": "mlp.mlp1_weight",
    "second": "mlp.mlp2_weight",
}
_HUGGING_FACE = {
    "attn_norm": "input_layernorm.weight",
    "out": "self_attn.o_proj",
    "sinks": "self_attn.sinks",
    "mlp_norm": "post_attention_layernorm.weight",
    "router": "mlp.router",
    "first": "mlp.experts.gate_up_proj",
    "second": "mlp.experts.down_proj",
}


def mxfp4(blocks: Tensor, scales: Tensor) -> np.ndarray:
    """Checkpoints store two neighbours in a byte; llama.cpp stores value j with value j + 16."""
    values = torch.stack((blocks & 0x0F, blocks >> 4), dim=-1).flatten(-2)
    halves = values[..., :16] | (values[..., 16:] << 4)
    joined = torch.cat((scales.unsqueeze(-1), halves), dim=-1).flatten(-2)
    return joined.contiguous().numpy()


def _floats(tensor: Tensor) -> np.ndarray:
    return tensor.float().contiguous().numpy()


def _bytes(tensor: Tensor) -> np.ndarray:
    return tensor.bfloat16().contiguous().view(torch.uint8).numpy()
