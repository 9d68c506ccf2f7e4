"""A checkpoint as a folder that vLLM serves on a CPU: weights without MXFP4, and a tokenizer.

The weights are the same numbers; vLLM's kernels for MXFP4 need a processor that few machines have. As in an
exported GGUF file, layers of zeros stand where vLLM expects a window, so that the model computes the same.
"""

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from gpt_oss_server.cli.commands.export import harmony_vocabulary
from inference.export.gguf_file import spread_layers
from inference.export.vocabulary import Vocabulary, byte_merges, spelt
from inference.ops.reference import dequantise_mxfp4

_LETTERS, _SMALL, _LARGE = r"\p{L}\p{N}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}", r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# How the vocabulary splits text before it merges bytes.
_SPLITTER = "|".join(
    (
        rf"[^\r\n{_LETTERS}]?[{_LARGE}]*[{_SMALL}]+{_ENDINGS}",
        rf"[^\r\n{_LETTERS}]?[{_LARGE}]+[{_SMALL}]*{_ENDINGS}",
        r"\p{N}{1,3}",
        rf" ?[^\s{_LETTERS}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_SLIDING = "sliding_attention"
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_NAMED = range(199_998, 200_019)  # special tokens with a name; later ids have none


def write_folder(checkpoint: Path, folder: Path) -> Path:
    config = json.loads((checkpoint / "config.json").read_text())
    del config["quantization_config"]
    # vLLM gives every second layer a window, whatever the checkpoint states.
    places = spread_layers([kind == _SLIDING for kind in config["layer_types"]])
    config["num_hidden_layers"] = len(places)
    config["layer_types"] = ["full_attention" if layer % 2 else _SLIDING for layer in range(len(places))]
    config["torch_dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text((checkpoint / "generation_config.json").read_text())
    tensors = _spread(_unpacked(load_file(checkpoint / "model.safetensors")), places)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    vocabulary = harmony_vocabulary()
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary)))
    ends = {"bos_token": 199_998, "eos_token": 200_002, "pad_token": 199_999}
    names: dict[str, Any] = {name: vocabulary.special[token] for name, token in ends.items()}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    names["model_max_length"] = config["max_position_embeddings"]
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def _unpacked(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in tensors.items():
        if name.endswith("_blocks"):
            whole = name.removesuffix("_blocks")
            values = dequantise_mxfp4(tensor, tensors[f"{whole}_scales"], torch.bfloat16)
            found[whole] = values.transpose(1, 2).contiguous()
        elif not name.endswith("_scales"):
            found[name] = tensor
    return found


def _spread(tensors: dict[str, torch.Tensor], places: list[int | None]) -> dict[str, torch.Tensor]:
    found = {name: tensor for name, tensor in tensors.items() if not _LAYER.match(name)}
    for place, layer in enumerate(places):
        for name, tensor in tensors.items():
            if (parts := _LAYER.match(name)) and int(parts[1]) == (layer or 0):
                copied = torch.zeros_like(tensor) if layer is None else tensor
                found[f"model.layers.{place}.{parts[2]}"] = copied
    return found


def _tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _SPLITTER}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": token, "content": vocabulary.special[token], **special} for token in _NAMED],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {spelt(token): rank for rank, token in enumerate(vocabulary.ordinary)},
            "merges": list(byte_merges(vocabulary.ordinary)),
            "ignore_merges": False,
        },
    }
