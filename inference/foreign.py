"""Recognises checkpoints that are not gpt-oss in safetensors files, and states what they are in a sentence.

None stands for anything that may be a checkpoint of gpt-oss. It reads no weights and imports no framework.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ARCHITECTURE = "gpt_oss"  # in Hugging Face's config.json
_ONLY = "The built-in engine runs OpenAI's gpt-oss models from safetensors files, such as openai/gpt-oss-20b."
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def foreign_file(path: Path) -> str | None:
    """What a file is that was named in place of a checkpoint's folder."""
    if is_gguf(path):
        return _gguf(str(path))
    if path.suffix == ".safetensors":
        return f"{path} is one file of a checkpoint. Name its folder: {path.parent}."
    if path.suffix in _PICKLES:
        return _pickled(str(path))
    return None


def foreign_folder(folder: Path) -> str | None:
    for candidate in (folder, folder / "original"):
        config = _config(candidate / "config.json")
        if config is not None and (problem := foreign_config(config)):
            return f"{candidate} {problem}"
    return foreign_files((path.name for path in folder.iterdir() if path.is_file()), str(folder))


def foreign_files(names: Iterable[str], where: str) -> str | None:
    """What the files of a folder or a repo hold; None where any of them are safetensors weights."""
    names = sorted(names)
    if any(name.endswith(".safetensors") for name in names):
        return None
    for name in names:
        if name.lower().endswith(".gguf"):
            return _gguf(f"{where}/{name}")
        if name.endswith(_PICKLES) and ("pytorch" in name or "consolidated" in name):
            return _pickled(f"{where}/{name}")
    return None


def foreign_config(raw: Mapping[str, Any]) -> str | None:
    """Completes a sentence that begins with the checkpoint's name."""
    kind, built = raw.get("model_type"), raw.get("architectures")
    if kind in (None, ARCHITECTURE) or not isinstance(kind, str):
        return None
    name = f"{kind} ({built[0]})" if isinstance(built, list) and built else kind
    return f"is a checkpoint of another kind of model: {name}. {_ONLY}"


def _gguf(name: str) -> str:
    return f"{name} is a GGUF file, which llama-server runs: name the file, with --engine llama. {_ONLY}"


def _pickled(name: str) -> str:
    return f"{name} holds weights in PyTorch's pickle format. {_ONLY}"


def is_gguf(path: Path) -> bool:
    """By its first bytes too: Ollama's files are named by their hash."""
    if path.suffix.lower() == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _config(path: Path) -> Mapping[str, Any] | None:
    """None for a file that is missing or unreadable: the loader reports that."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, Mapping) else None
