"""Brings a checkpoint from the Hugging Face hub, or from its cache on this machine.

In goes a repo id, out comes a folder. Downloads the weights of one layout and the configs beside them, not
the copies in other formats that a repo may hold. The hub's own progress bar shows how far it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from inference.engine import ModelNotFound

CONFIGS = ("config.json", "generation_config.json", "model.safetensors.index.json")
IN_CACHE = [*CONFIGS, "*.safetensors", *(f"original/{name}" for name in CONFIGS)]


def files_needed(names: Iterable[str]) -> list[str]:
    """Of a repo's files, those of one layout: the top folder's if it has weights, else `original/`'s."""
    names = list(names)
    for folder in ("", "original/"):
        here = [name for name in names if name.startswith(folder) and "/" not in name.removeprefix(folder)]
        weights = [name for name in here if name.endswith(".safetensors")]
        if weights:
            return sorted(weights + [name for name in here if name.removeprefix(folder) in CONFIGS])
    return []


def download(repo: str) -> Path:
    try:
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise ModelNotFound(
            f"There is no folder {repo}, and to download a repo of that name huggingface_hub is needed: "
            "pip install huggingface_hub."
        ) from error
    try:
        needed = files_needed(HfApi().list_repo_files(repo))
        if not needed:
            raise ModelNotFound(f"The Hugging Face repo {repo} holds no .safetensors weights.")
        return Path(snapshot_download(repo, allow_patterns=needed))
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        # Offline, no such repo, no access: a copy in the cache still serves.
        try:
            cached = Path(snapshot_download(repo, allow_patterns=IN_CACHE, local_files_only=True))
        except (LocalEntryNotFoundError, OSError, ValueError):
            raise ModelNotFound(_what_was_tried(repo, error)) from error
        return cached


def _what_was_tried(repo: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"The model {repo!r} is no folder here, nor in the Hugging Face cache, nor on the hub "
        f"({type(error).__name__}: {reason}). Check the name and the network; for a repo that needs "
        "permission set HF_TOKEN; without a network give a folder that holds the checkpoint, or use tiny."
    )
