"""Loads a gpt-oss checkpoint from either layout.

Takes a folder and returns `Weights` whose tensors fit the config; the model must not know which layout they
came from. Experts stay in the mapped file as stored (MXFP4 packed, or bf16), and only those in use become
floats; everything else is converted to the compute type at load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.engine import CheckpointError
from inference.models.experts import MXFP4_BLOCK, Packed, PackedExperts, PlainExperts, check_block_sizes
from inference.models.head import pack_head
from inference.models.tensor_files import TensorFiles, TensorSource
from inference.ops.device import runs_fp8, runs_kernels
from inference.ops.halves import HalfRows, halves_where_exact
from inference.ops.reference import MixtureWeights
from inference.ops.scaled import Rounding, Rows, ScaledRows, scaled
from inference.options import Precision
from inference.progress import ProgressBar

HEAD_ROWS_AT_ONCE = 4096
AS_COMPUTED = Precision()


@dataclass(frozen=True, slots=True)
class LayerWeights:
    attention_norm: Tensor
    qkv: Rows | HalfRows  # rows q, k, v
    qkv_bias: Tensor | None
    sinks: Tensor
    out: Rows | HalfRows
    out_bias: Tensor | None
    mlp_norm: Tensor
    router: Tensor
    router_bias: Tensor
    experts: MixtureWeights


@dataclass(frozen=True, slots=True)
class Weights:
    embedding: Tensor  # V × H as stored: a token's row is converted on use
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor | ScaledRows | HalfRows  # H × V; ScaledRows: V × H
    rounding: float | None = None  # with FP8 weights, their relative error


def find_checkpoint(folder: Path) -> Path:
    """The folder with config.json and the weights: this one or its `original/`."""
    for candidate in (folder, folder / "original"):
        if (candidate / "config.json").is_file() and any(candidate.glob("*.safetensors")):
            return candidate
    if (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has a config.json but no .safetensors file. Download its weights.")
    raise CheckpointError(
        f"{folder} is no checkpoint: neither it nor its folder 'original' has both a config.json and "
        ".safetensors files."
    )


def load_weights(
    folder: Path,
    config: ModelConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    precision: Precision = AS_COMPUTED,
    progress: bool | None = None,
) -> Weights:
    source = TensorFiles(folder)
    return weights_of(source, config, device=device, dtype=dtype, precision=precision, progress=progress)


def weights_of(
    source: TensorSource,
    config: ModelConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    precision: Precision = AS_COMPUTED,
    progress: bool | None = None,
) -> Weights:
    reader = _Reader(source, config, device, dtype, precision)
    with ProgressBar("Loading weights", config.layers + 1, show=progress) as bar:
        embedding, norm, head = reader.ends()
        bar.advance()
        layers = []
        for layer in range(config.layers):
            layers.append(reader.layer(layer))
            bar.advance()
    rounding = None if reader.rounding is None else reader.rounding.relative_error()
    return Weights(embedding=embedding, layers=tuple(layers), norm=norm, head=head, rounding=rounding)


class _Reader:
    def __init__(
        self,
        files: TensorSource,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        precision: Precision,
    ) -> None:
        self._files, self._config, self._device, self._dtype = files, config, device, dtype
        self._repacks = runs_kernels(device)
        self._keeps_fp8 = runs_fp8(device)
        self.rounding = Rounding() if precision.weights == "fp8" else None
        self._is_original = "embedding.weight" in files
        if not self._is_original and "model.embed_tokens.weight" not in files:
            raise CheckpointError(
                f"{files.folder} holds no gpt-oss model: neither 'embedding.weight' (original layout) nor "
                "'model.embed_tokens.weight' (the Hugging Face layout) is among its tensors."
            )

    def _rows(self, rows: Tensor) -> Rows:
        """In FP8 if requested; where no kernel reads FP8, the floats that it stands for."""
        if self.rounding is None:
            return rows
        found = scaled(rows)
        self.rounding.count(rows, found)
        return found if self._keeps_fp8 else found.floats(rows.dtype)

    def _product_rows(self, rows: Tensor) -> Rows | HalfRows:
        found = self._rows(rows)
        return found if isinstance(found, ScaledRows) else halves_where_exact(found)

    def ends(self) -> tuple[Tensor, Tensor, Tensor | ScaledRows | HalfRows]:
        """Embedding, last norm and head."""
        shape = (self._config.vocab_size, self._config.hidden)
        if self._is_original:
            names = ("embedding.weight", "norm.scale", "unembedding.weight")
        else:
            names = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
        embedding = self._files.take(names[0], shape).to(self._device)
        norm = self._converted(names[1], (self._config.hidden,)).float()
        head = embedding if self._config.tied_head else self._files.take(names[2], shape)
        return embedding, norm, self._head(head)

    def layer(self, layer: int) -> LayerWeights:
        return self._original_layer(layer) if self._is_original else self._hugging_face_layer(layer)

    def _original_layer(self, layer: int) -> LayerWeights:
        config, take = self._config, self._under(f"block.{layer}.")
        heads, kv, hidden = self._sizes()
        bias = config.attention_bias
        return LayerWeights(
            attention_norm=take("attn.norm.scale", hidden).float(),
            qkv=self._product_rows(take("attn.qkv.weight", heads + 2 * kv, hidden)),
            qkv_bias=take("attn.qkv.bias", heads + 2 * kv) if bias else None,
            sinks=take("attn.sinks", config.heads),
            out=self._product_rows(take("attn.out.weight", hidden, heads)),
            out_bias=take("attn.out.bias", hidden) if bias else None,
            mlp_norm=take("mlp.norm.scale", hidden).float(),
            router=take("mlp.gate.weight", config.experts, hidden),
            router_bias=take("mlp.gate.bias", config.experts),
            experts=self._experts(f"block.{layer}.mlp.", "mlp1_weight", "mlp2_weight", "."),
        )

    def _hugging_face_layer(self, layer: int) -> LayerWeights:
        config, take = self._config, self._under(f"model.layers.{layer}.")
        heads, kv, hidden = self._sizes()
        bias = config.attention_bias
        parts = (("q", heads), ("k", kv), ("v", kv))
        qkv = torch.cat([take(f"self_attn.{part}_proj.weight", rows, hidden) for part, rows in parts])
        biases = [take(f"self_attn.{part}_proj.bias", rows) for part, rows in parts if bias]
        return LayerWeights(
            attention_norm=take("input_layernorm.weight", hidden).float(),
            qkv=self._product_rows(qkv),
            qkv_bias=torch.cat(biases) if bias else None,
            sinks=take("self_attn.sinks", config.heads),
            out=self._product_rows(take("self_attn.o_proj.weight", hidden, heads)),
            out_bias=take("self_attn.o_proj.bias", hidden) if bias else None,
            mlp_norm=take("post_attention_layernorm.weight", hidden).float(),
            router=take("mlp.router.weight", config.experts, hidden),
            router_bias=take("mlp.router.bias", config.experts),
            experts=self._experts(f"model.layers.{layer}.mlp.experts.", "gate_up_proj", "down_proj", "_"),
        )

    def _experts(self, prefix: str, first: str, second: str, joint: str) -> MixtureWeights:
        """Packed if the layer has blocks, else plain. The original's biases are mlp1_bias and mlp2_bias."""
        config, files, device = self._config, self._files, self._device
        shapes = (
            (config.experts, 2 * config.intermediate, config.hidden),
            (config.experts, config.hidden, config.intermediate),
        )
        names = (f"{prefix}{first}", f"{prefix}{second}")
        bias_names = [name.replace("_weight", "") + "_bias" for name in names]
        biases = [self._converted(name, shape[:2]) for name, shape in zip(bias_names, shapes, strict=True)]
        if f"{names[0]}{joint}blocks" in files:
            check_block_sizes(config)
            packed = [
                (
                    files.take(f"{name}{joint}blocks", (*rows, width // MXFP4_BLOCK, 16), bytes_only=True).to(
                        device
                    ),
                    files.take(f"{name}{joint}scales", (*rows, width // MXFP4_BLOCK), bytes_only=True).to(
                        device
                    ),
                )
                for name, (*rows, width) in zip(names, shapes, strict=True)
            ]
            if self._repacks:
                return _repacked(config, packed, biases)
            return PackedExperts(config, self._dtype, packed[0], biases[0], packed[1], biases[1])
        plain = [self._plain(name, shape).to(device) for name, shape in zip(names, shapes, strict=True)]
        return PlainExperts(config, self._dtype, plain[0], biases[0], plain[1], biases[1])

    def _plain(self, name: str, shape: tuple[int, int, int]) -> Tensor:
        """E × rows × columns as a view; Hugging Face stores the last two transposed."""
        if self._is_original:
            return self._files.take(name, shape)
        return self._files.take(name, (shape[0], shape[2], shape[1])).transpose(1, 2)

    def _head(self, stored: Tensor) -> Tensor | ScaledRows | HalfRows:
        """H × V, V × H in FP8. On the CPU, if not packed, it is stored in this order, which reads at memory
        speed.

        201,088 × 128 in float32 with one thread: 3.7 ms, against 13.5 ms for V × H.
        """
        rows = self._rows(stored.to(self._device)) if self.rounding is not None else stored
        if isinstance(rows, ScaledRows):
            return rows
        stored = rows
        packed = pack_head(stored, self._dtype) if self._device.type == "cpu" else None
        if packed is not None:
            return packed
        if self._device.type != "cpu":
            return stored.to(self._device, self._dtype).t()
        head = torch.empty(stored.shape[1], stored.shape[0], dtype=self._dtype)
        for at in range(0, stored.shape[0], HEAD_ROWS_AT_ONCE):  # one part at a time fits the cache
            part = stored[at : at + HEAD_ROWS_AT_ONCE]
            head[:, at : at + len(part)].copy_(part.to(self._dtype).t())
        return head

    def _under(self, prefix: str) -> Callable[..., Tensor]:
        def take(name: str, *shape: int) -> Tensor:
            return self._converted(prefix + name, shape)

        return take

    def _converted(self, name: str, shape: tuple[int, ...]) -> Tensor:
        # A copy even if the type fits: a token must not wait for the disk because of a small tensor.
        return self._files.take(name, shape).to(self._device, self._dtype, copy=True)

    def _sizes(self) -> tuple[int, int, int]:
        """Rows of the queries, of the keys, and the hidden size."""
        config = self._config
        return config.heads * config.head_dim, config.kv_heads * config.head_dim, config.hidden


def _repacked(config: ModelConfig, packed: Sequence[Packed], biases: Sequence[Tensor]) -> MixtureWeights:
    """Converts to the layout of the kernels; the stored one is freed."""
    from inference.ops.expert_kernels import Mixture
    from inference.ops.packing import repack

    first, second = (repack(*part, paired=paired) for part, paired in zip(packed, (True, False), strict=True))
    return Mixture(first, biases[0], second, biases[1], limit=config.swiglu_limit, alpha=config.swiglu_alpha)
