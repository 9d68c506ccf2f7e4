"""A checkpoint's tensors under llama.cpp's names and in its layouts, lazily, one at a time.

Weights keep their types (MXFP4 stays MXFP4); norms, biases, sinks and routers become float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.models.layouts import MXFP4_BLOCK, Layout
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
    layout, shape = Layout(files, config), (config.vocab_size, config.hidden)
    yield _weight("token_embd.weight", shape, lambda: layout.end("embedding", *shape))
    yield _float("output_norm.weight", shape[1:], lambda: layout.end("norm", config.hidden))
    yield _weight("output.weight", shape, lambda: layout.end("head", *shape))
    for layer in range(config.layers):
        yield from _Layer(layout, config, layer).tensors()


class _Layer:
    def __init__(self, layout: Layout, config: ModelConfig, layer: int) -> None:
        self._layout, self._config, self._layer = layout, config, layer
        self._prefix = f"blk.{layer}."

    def tensors(self) -> Iterator[Exported]:
        config, hidden = self._config, self._config.hidden
        yield self._part(_float, "attn_norm.weight", "attention_norm", hidden)
        yield from self._attention()
        yield self._part(_weight, "attn_output.weight", "out.weight", hidden, config.heads * config.head_dim)
        if config.attention_bias:
            yield self._part(_float, "attn_output.bias", "out.bias", hidden)
        yield self._part(_float, "attn_sinks.weight", "sinks", config.heads)
        yield self._part(_float, "post_attention_norm.weight", "mlp_norm", hidden)
        yield self._part(_float, "ffn_gate_inp.weight", "router.weight", config.experts, hidden)
        yield self._part(_float, "ffn_gate_inp.bias", "router.bias", config.experts)
        # Gate and up are the even and the odd rows of one tensor.
        yield from self._expert("ffn_gate_exps", "first", config.intermediate, hidden, slice(0, None, 2))
        yield from self._expert("ffn_up_exps", "first", config.intermediate, hidden, slice(1, None, 2))
        yield from self._expert("ffn_down_exps", "second", hidden, config.intermediate, slice(None))

    def _part(self, form: _Form, name: str, part: str, *shape: int) -> Exported:
        return form(self._prefix + name, shape, lambda: self._layout.take(self._layer, part, *shape))

    def _attention(self) -> Iterator[Exported]:
        config, kv = self._config, self._config.kv_heads * self._config.head_dim
        for at, (part, rows) in enumerate((("q", config.heads * config.head_dim), ("k", kv), ("v", kv))):
            name, columns = f"{self._prefix}attn_{part}", config.hidden
            yield _weight(f"{name}.weight", (rows, columns), self._third(at, "weight", columns))
            if config.attention_bias:
                yield _float(f"{name}.bias", (rows,), self._third(at, "bias"))

    def _third(self, at: int, kind: str, *columns: int) -> Callable[[], Tensor]:
        """Of queries, keys and values."""
        return lambda: self._layout.qkv(self._layer, kind, *columns)[at]

    def _expert(self, name: str, part: str, rows: int, columns: int, cut: slice) -> Iterator[Exported]:
        layout, layer, experts = self._layout, self._layer, self._config.experts
        to = self._prefix + name
        if layout.is_packed(layer, part):
            shape = (experts, rows, columns // MXFP4_BLOCK * BYTES_OF_BLOCK)
            yield Exported(f"{to}.weight", MXFP4, shape, lambda: mxfp4(*layout.packed(layer, part), cut))
        else:
            yield _weight(f"{to}.weight", (experts, rows, columns), lambda: layout.plain(layer, part)[:, cut])
        yield _float(f"{to}.bias", (experts, rows), lambda: layout.expert_biases(layer, part)[:, cut])


_Form = Callable[[str, tuple[int, ...], Callable[[], Tensor]], Exported]


def _weight(name: str, shape: tuple[int, ...], take: Callable[[], Tensor]) -> Exported:
    in_bytes = (*shape[:-1], 2 * shape[-1])
    return Exported(name, BF16, in_bytes, lambda: take().bfloat16().contiguous().view(torch.uint8).numpy())


def _float(name: str, shape: tuple[int, ...], take: Callable[[], Tensor]) -> Exported:
    return Exported(name, F32, shape, lambda: take().float().contiguous().numpy())


def mxfp4(blocks: Tensor, scales: Tensor, cut: slice = slice(None)) -> np.ndarray:
    """The rows of a cut. Checkpoints store two neighbours in a byte; llama.cpp stores value j with j + 16."""
    blocks, scales = blocks[:, cut], scales[:, cut]
    values = torch.stack((blocks & 0x0F, blocks >> 4), dim=-1).flatten(-2)
    halves = values[..., :16] | (values[..., 16:] << 4)
    joined = torch.cat((scales.unsqueeze(-1), halves), dim=-1).flatten(-2)
    return joined.contiguous().numpy()
