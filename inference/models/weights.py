"""Loads a gpt-oss checkpoint from either layout into `Weights` whose tensors fit the config.

Experts stay in the mapped file as stored (MXFP4 packed, or bf16), and only those in use become floats;
everything else is converted to the compute type at load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.engine import CheckpointError
from inference.models.experts import Experts
from inference.models.layouts import Layout, Packed
from inference.models.tensor_files import TensorSource
from inference.ops.device import runs_fp8, runs_kernels
from inference.ops.halves import LARGEST_HALF, HalfRows, halves_where_exact, has_halves
from inference.ops.reference import MixtureWeights
from inference.ops.scaled import Rows, ScaledRows, rounding_error, scaled, squares
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
    rounding = None if reader.squares is None else rounding_error(reader.squares)
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
        self._config, self._device, self._dtype = config, device, dtype
        self._layout = Layout(files, config)
        self._repacks = runs_kernels(device)
        self._keeps_fp8 = runs_fp8(device)
        self.squares = torch.zeros(2) if precision.weights == "fp8" else None  # of FP8's errors, and of all

    def _rows(self, rows: Tensor) -> Rows:
        """In FP8 if requested; where no kernel reads FP8, the floats that it stands for."""
        if self.squares is None:
            return rows
        rounded = scaled(rows)
        self.squares += squares(rows, rounded).cpu()
        return rounded if self._keeps_fp8 else rounded.floats(rows.dtype)

    def _product_rows(self, rows: Tensor) -> Rows | HalfRows:
        stored = self._rows(rows)
        return stored if isinstance(stored, ScaledRows) else halves_where_exact(stored)

    def ends(self) -> tuple[Tensor, Tensor, Tensor | ScaledRows | HalfRows]:
        """Embedding, last norm and head."""
        vocabulary, hidden = self._config.vocab_size, self._config.hidden
        embedding = self._layout.end("embedding", vocabulary, hidden).to(self._device)
        norm = self._converted(self._layout.end("norm", hidden)).float()
        return embedding, norm, self._head(self._layout.end("head", vocabulary, hidden))

    def layer(self, layer: int) -> LayerWeights:
        config, hidden = self._config, self._config.hidden

        def take(part: str, *shape: int) -> Tensor:
            return self._converted(self._layout.take(layer, part, *shape))

        def qkv(kind: str, *columns: int) -> Tensor:
            return torch.cat([self._converted(part) for part in self._layout.qkv(layer, kind, *columns)])

        return LayerWeights(
            attention_norm=take("attention_norm", hidden).float(),
            qkv=self._product_rows(qkv("weight", hidden)),
            qkv_bias=qkv("bias") if config.attention_bias else None,
            sinks=take("sinks", config.heads),
            out=self._product_rows(take("out.weight", hidden, config.heads * config.head_dim)),
            out_bias=take("out.bias", hidden) if config.attention_bias else None,
            mlp_norm=take("mlp_norm", hidden).float(),
            router=take("router.weight", config.experts, hidden),
            router_bias=take("router.bias", config.experts),
            experts=self._experts(layer),
        )

    def _experts(self, layer: int) -> MixtureWeights:
        """Packed if the layer has blocks, else plain."""
        layout, device = self._layout, self._device
        parts = ("first", "second")
        biases = [self._converted(layout.expert_biases(layer, part)) for part in parts]
        if layout.is_packed(layer, "first"):
            stored = (layout.packed(layer, part) for part in parts)
            packed = [(blocks.to(device), scales.to(device)) for blocks, scales in stored]
            if self._repacks:
                return _repacked(self._config, packed, biases)
            return Experts(self._config, self._dtype, packed, biases)
        plain = [layout.plain(layer, part).to(device) for part in parts]
        return Experts(self._config, self._dtype, plain, biases)

    def _head(self, stored: Tensor) -> Tensor | ScaledRows | HalfRows:
        """H × V, V × H in FP8. On the CPU, if not packed, it is stored in this order, which reads at memory
        speed: 201,088 × 128 in float32 with one thread take 3.7 ms, against 13.5 ms for V × H."""
        rows = self._rows(stored.to(self._device)) if self.squares is not None else stored
        if isinstance(rows, ScaledRows):
            return rows
        stored = rows
        if self._device.type == "cpu" and (packed := pack_head(stored, self._dtype)) is not None:
            return packed
        if self._device.type != "cpu":
            return stored.to(self._device, self._dtype).t()
        head = torch.empty(stored.shape[1], stored.shape[0], dtype=self._dtype)
        for at in range(0, stored.shape[0], HEAD_ROWS_AT_ONCE):  # one part at a time fits the cache
            part = stored[at : at + HEAD_ROWS_AT_ONCE]
            head[:, at : at + len(part)].copy_(part.to(self._dtype).t())
        return head

    def _converted(self, tensor: Tensor) -> Tensor:
        # A copy even if the type fits: a token must not wait for the disk because of a small tensor.
        return tensor.to(self._device, self._dtype, copy=True)


def _repacked(config: ModelConfig, packed: Sequence[Packed], biases: Sequence[Tensor]) -> MixtureWeights:
    """Converts to the layout of the kernels; the stored one is freed."""
    from inference.ops.expert_kernels import Mixture
    from inference.ops.packing import repack

    first, second = (repack(*part, paired=paired) for part, paired in zip(packed, (True, False), strict=True))
    return Mixture(first, biases[0], second, biases[1], limit=config.swiglu_limit, alpha=config.swiglu_alpha)


def pack_head(stored: Tensor, dtype: torch.dtype) -> HalfRows | None:
    """The head on a CPU: by far the largest matrix of a small model, read in full for every token. On a core
    a row of 201,088 × 128 takes 2.8 ms and eight take 4.5; in float32, at least 5 and 15.

    `stored` is V×H. None if packing would lose precision, or if PyTorch cannot multiply by halves.
    """
    is_half = stored.dtype in (torch.bfloat16, torch.float16)
    if dtype != torch.float32 or not is_half or not has_halves(stored.device):
        return None
    least, largest = stored.aminmax()
    return None if max(-float(least), float(largest)) > LARGEST_HALF else HalfRows(stored)
