"""Writes a checkpoint as one GGUF file, which llama.cpp loads.

The file appears under its name when it is complete. Weights keep their types (MXFP4 stays MXFP4); norms,
biases, sinks and routers become float32. Needs the package `gguf` (the extra `gguf`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.config import ModelConfig, read_config
from inference.engine import CheckpointError
from inference.models.layouts import MXFP4_BLOCK, Layout
from inference.models.tensor_files import TensorFiles, TensorSource
from inference.models.weights import find_checkpoint
from inference.paths import open_to_others, replacing
from inference.progress import ProgressBar

ARCHITECTURE = "gpt-oss"
SPLITTER = "gpt-4o"  # llama.cpp's name of the pattern that splits text before merging
BEGIN, END, PAD = 199998, 200002, 199999
F32, BF16, MXFP4 = "F32", "BF16", "MXFP4"
BYTES_OF_BLOCK = 17  # a scale, and 16 bytes of 32 values
_LAYER = re.compile(r"(block|model\.layers)\.(\d+)\.")
_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A byte-pair vocabulary: the bytes of each ordinary token, and the names of the special ones."""

    ordinary: Sequence[bytes]  # by id, which is also the rank
    special: Mapping[int, str]


def _spelling() -> dict[int, str]:
    """A visible character for each byte, as GPT-2's tokenizer introduced it."""
    spelt = {byte: chr(byte) for byte in _PRINTABLE}
    others = (byte for byte in range(256) if byte not in spelt)
    return spelt | {byte: chr(256 + number) for number, byte in enumerate(others)}


_SPELT = _spelling()


def spelt(token: bytes) -> str:
    return "".join(_SPELT[byte] for byte in token)


def byte_merges(ordinary: Sequence[bytes]) -> Iterator[str]:
    """The two parts of each token of several bytes, spelt, in the order in which merging prefers them."""
    ranks = {token: rank for rank, token in enumerate(ordinary)}
    for rank, token in enumerate(ordinary):
        if len(token) > 1:
            first, second = _parts(token, rank, ranks)
            yield f"{spelt(first)} {spelt(second)}"


def _parts(token: bytes, rank: int, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    """Merges a token's bytes by all earlier ranks, which leaves its last two parts."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        best, first = rank, -1
        for at in range(len(parts) - 1):
            merged = ranks.get(parts[at] + parts[at + 1], rank)
            if merged < best:
                best, first = merged, at
        if first < 0:
            raise ValueError(f"token {rank} cannot be made of two earlier ones")
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    return parts[0], parts[1]


def write_gguf(
    folder: Path, path: Path, vocabulary: Vocabulary, *, name: str, progress: bool | None = None
) -> None:
    """Raises `CheckpointError`."""
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError("Writing GGUF needs the package gguf, of this project's extra gguf.") from error
    folder = find_checkpoint(folder)
    config = read_config(folder / "config.json")
    # llama.cpp gives every second layer a window, whatever the checkpoint states.
    files, config = alternating(TensorFiles(folder), config)
    tensors = list(exported(files, config))
    writer = gguf.GGUFWriter(None, ARCHITECTURE)
    _describe(gguf, writer, config, tensors, name)
    _add_vocabulary(gguf, writer, vocabulary, config)
    try:
        with replacing(path) as file:  # the name of the user's file never holds half
            with closing(writer):
                _write(gguf, writer, tensors, Path(file.name), progress)
            open_to_others(Path(file.name))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}.") from error


def _describe(gguf: Any, writer: Any, config: ModelConfig, tensors: list[Exported], name: str) -> None:
    packed = any(tensor.kind == MXFP4 for tensor in tensors)
    kinds = gguf.LlamaFileType
    writer.add_name(name)
    writer.add_file_type(kinds.MOSTLY_MXFP4_MOE if packed else kinds.MOSTLY_BF16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.context_length)
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.intermediate)
    writer.add_expert_feed_forward_length(config.intermediate)
    writer.add_expert_count(config.experts)
    writer.add_expert_used_count(config.experts_per_token)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_sliding_window(config.sliding_window)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    if config.rope.factor != 1.0:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config.rope.factor)
        writer.add_rope_scaling_orig_ctx_len(config.rope.original_context)
        writer.add_rope_scaling_yarn_beta_fast(config.rope.beta_fast)
        writer.add_rope_scaling_yarn_beta_slow(config.rope.beta_slow)


def _add_vocabulary(gguf: Any, writer: Any, vocabulary: Vocabulary, config: ModelConfig) -> None:
    kinds = gguf.TokenType
    texts = [spelt(token) for token in vocabulary.ordinary[: config.vocab_size]]
    types = [kinds.NORMAL] * len(texts)
    for token in range(len(texts), config.vocab_size):
        special = vocabulary.special.get(token)
        texts.append(f"[PAD{token}]" if special is None else special)
        types.append(kinds.UNUSED if special is None else kinds.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLITTER)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(list(byte_merges(vocabulary.ordinary)))
    writer.add_add_bos_token(False)
    adds = {BEGIN: writer.add_bos_token_id, END: writer.add_eos_token_id, PAD: writer.add_pad_token_id}
    for token, add in adds.items():
        if token < config.vocab_size:
            add(token)


def _write(gguf: Any, writer: Any, tensors: list[Exported], path: Path, progress: bool | None) -> None:
    for tensor in tensors:
        kind = np.dtype(np.float32 if tensor.kind == F32 else np.uint8)
        raw = gguf.GGMLQuantizationType[tensor.kind]
        writer.add_tensor_info(tensor.name, tensor.shape, kind, tensor.nbytes, raw_dtype=raw)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    with ProgressBar("Writing", len(tensors), show=progress) as bar:
        for tensor in tensors:
            writer.write_tensor_data(tensor.make())
            bar.advance()


def spread_layers(sliding_layers: Sequence[bool]) -> list[int | None]:
    """For each layer of the result, the layer of the model, or None for one of zeros."""
    places: list[int | None] = []
    for layer, slides in enumerate(sliding_layers):
        if slides != (len(places) % 2 == 0):
            places.append(None)
        places.append(layer)
    return places


def alternating(files: TensorSource, config: ModelConfig) -> tuple[TensorSource, ModelConfig]:
    """A model as engines expect that give every second layer a window, whatever its own layers are.

    Where two layers of one kind follow each other, or the first has no window, a layer of zeros is inserted,
    which adds nothing. The result is the same if the layers alternate already.
    """
    places = spread_layers(config.sliding_layers)
    if None not in places:
        return files, config
    layers = len(places)
    slides = tuple(layer % 2 == 0 for layer in range(layers))
    return _Alternating(files, places), replace(config, layers=layers, sliding_layers=slides)


class _Alternating:
    """Implements `TensorSource`. A layer of zeros has the names, shapes and types of the first layer."""

    def __init__(self, files: TensorSource, places: Sequence[int | None]) -> None:
        self._files, self._places = files, places
        self.folder = files.folder

    def __contains__(self, name: str) -> bool:
        return self._source(name)[0] in self._files

    def take(self, name: str, shape: Sequence[int], *, bytes_only: bool = False) -> Tensor:
        source, inserted = self._source(name)
        tensor = self._files.take(source, shape, bytes_only=bytes_only)
        return torch.zeros_like(tensor) if inserted else tensor

    def _source(self, name: str) -> tuple[str, bool]:
        """The tensor of the model that this one is, or looks like."""
        match = _LAYER.match(name)
        if match is None:
            return name, False
        layer = self._places[int(match[2])]
        return f"{match[1]}.{layer or 0}.{name[match.end() :]}", layer is None


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
    """The tensors under llama.cpp's names and in its layouts, lazily, one at a time."""
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
