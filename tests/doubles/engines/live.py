"""Real engines of other programs with the embedded model's weights, as a server's `--model` names them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpt_oss_server.cli.server.exported import harmony_vocabulary
from inference import tiny
from inference.export.gguf_file import Vocabulary, byte_merges, spelt, spread_layers, write_gguf
from inference.ops.reference import dequantise_mxfp4
from tests.doubles.server_process import answers, await_ready, free_port

KINDS = ("llama", "vllm")
# One thread: with two busy ones, a small machine is slower. No model is looked for on the network.
OF_VLLM = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",  # off by default; comparisons are with what it can do
}


@contextmanager
def live_engine(kind: str, scratch: Path, *flags: str, context: int = 1024, slots: int = 8) -> Iterator[str]:
    """Yields `llama:URL`, `vllm:URL`, or "tiny" as it is. Skips where the program is missing."""
    if kind == "tiny":
        yield kind
        return
    if kind == "llama":
        if (program := found_llama_server()) is None:
            pytest.skip("no llama-server: set LLAMA_SERVER to its path")
        model = exported(tiny.checkpoint(), scratch / "tiny.gguf")
        with llama_server(program, model, *flags, context=context, slots=slots) as (url, _):
            yield f"llama:{url}"
        return
    if (program := found_vllm()) is None:
        pytest.skip("no vLLM: set VLLM to the path of its program")
    with vllm_server(program, write_folder(tiny.checkpoint(), scratch), *flags, context=context) as url:
        yield f"vllm:{url}"


def found_llama_server() -> str | None:
    return os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


def found_vllm() -> str | None:
    return os.environ.get("VLLM") or shutil.which("vllm")


def exported(folder: Path, path: Path) -> Path:
    write_gguf(folder, path, harmony_vocabulary(), name="tiny")
    return path


Running = tuple[str, subprocess.Popen[bytes]]  # its URL and its process


def llama_server(
    program: str, model: Path, *flags: str, context: int = 1024, slots: int = 8, threads: int = 1
) -> AbstractContextManager[Running]:
    sizes = ["-c", str(context * slots), "-np", str(slots)]
    sizes += ["-t", str(threads), "-tb", str(threads)]
    return _running([program, "-m", str(model), *sizes, *flags], dict(os.environ), 120)


@contextmanager
def vllm_server(program: str, folder: Path, *flags: str, context: int = 1024) -> Iterator[str]:
    """Yields its URL. With the variable VLLM_URL, that of one which serves such a folder already."""
    if running := os.environ.get("VLLM_URL"):
        yield running
        return
    with vllm_process(program, folder, *flags, context=context) as (url, _):
        yield url


def vllm_process(
    program: str, folder: Path, *flags: str, context: int = 1024, threads: int = 1
) -> AbstractContextManager[Running]:
    sizes = ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(context)]
    names = ["--served-model-name", "tiny", "--generation-config", "vllm", "--enable-prompt-tokens-details"]
    variables = {**os.environ, **OF_VLLM, "OMP_NUM_THREADS": str(threads)}
    variables["PATH"] = f"{Path(program).parent}:{os.environ['PATH']}"
    return _running([program, "serve", str(folder), *sizes, *names, *flags], variables, 600)


@contextmanager
def _running(command: Sequence[str], env: dict[str, str], seconds: float) -> Iterator[Running]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [*command, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        await_ready(process, lambda: answers(f"{url}/health"), seconds=seconds)
        yield url, process
    finally:
        process.terminate()
        process.wait(60)


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
