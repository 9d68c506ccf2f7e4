"""Writes a checkpoint as one GGUF file, which llama.cpp loads.

Takes a checkpoint's folder, its vocabulary and a path. The file appears under its name when it is complete.
Needs the package `gguf` (the extra `gguf`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.config import ModelConfig, read_config
from inference.engine import CheckpointError
from inference.export.tensors import F32, MXFP4, Exported, exported
from inference.models.tensor_files import TensorFiles, TensorSource
from inference.models.weights import find_checkpoint
from inference.paths import open_to_others, replacing
from inference.progress import ProgressBar

ARCHITECTURE = "gpt-oss"
SPLITTER = "gpt-4o"  # llama.cpp's name of the pattern that splits text before merging
BEGIN, END, PAD = 199998, 200002, 199999
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
