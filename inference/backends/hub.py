"""Fetches a checkpoint from the Hugging Face hub, or from its cache on this machine: a folder for a repo id.

It downloads the weights of one layout and their configs. It states what a download costs before it begins,
and refuses one that the disk cannot hold; the hub's own progress bar shows the progress.
"""

import json
import logging
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from inference.backends.names import meant_by
from inference.config import read_config
from inference.engine import CheckpointError, ModelNotFound
from inference.foreign import foreign_config, foreign_files

INDEX = "model.safetensors.index.json"
CONFIGS = ("config.json", "generation_config.json", INDEX)
LAYOUTS = ("", "original/")
HUB_TIMEOUT = 5.0  # seconds for the first request to the hub; without, the client waits for minutes

logger = logging.getLogger(__name__)


def files_needed(names: Iterable[str]) -> list[str]:
    """The files of one layout: those of the top folder if it has weights, else of `original/`."""
    names = list(names)
    for folder in LAYOUTS:
        here = [name for name in names if name.startswith(folder) and "/" not in name.removeprefix(folder)]
        weights = [name for name in here if name.endswith(".safetensors")]
        if weights:
            return sorted(weights + [name for name in here if name.removeprefix(folder) in CONFIGS])
    return []


def download(repo: str) -> Path:
    """The folder of a repo's checkpoint: updated if possible, else the copy in the cache."""
    from huggingface_hub import HfApi, snapshot_download

    # Any Exception: without a network the client raises errors of its HTTP library, which changes with its
    # version (requests, httpx, httpx2).
    try:
        info = HfApi().model_info(repo, timeout=HUB_TIMEOUT, files_metadata=True)
        names = [file.rfilename for file in info.siblings or ()]
    except Exception as error:
        return _cached_instead(repo, error)
    needed = files_needed(names)
    named, config = f"The Hugging Face repo {repo}", getattr(info, "config", None)
    if isinstance(config, Mapping) and (problem := foreign_config(config)):
        raise ModelNotFound(f"{named} {problem}")
    if not needed:
        raise ModelNotFound(foreign_files(names, repo) or f"{named} holds no .safetensors weights.")
    _announce(repo, info, needed)
    try:
        return Path(snapshot_download(repo, allow_patterns=needed))
    except Exception as error:
        return _cached_instead(repo, error)


def _announce(repo: str, info: Any, needed: Sequence[str]) -> None:
    """`info`: the hub client's `ModelInfo` with the files' metadata. Files in the cache cost nothing."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    sizes = {file.rfilename: file.size or 0 for file in info.siblings or () if file.rfilename in needed}
    missing = {
        name: size
        for name, size in sizes.items()
        if not isinstance(try_to_load_from_cache(repo, name, revision=info.sha), str)
    }
    total, cache = sum(missing.values()), Path(HF_HUB_CACHE)
    if not total:
        return
    free = _free(cache)
    if total > free:
        raise CheckpointError(
            f"{repo} needs {in_words(total)} of disk in {cache}, and only {in_words(free)} are free. Free "
            "some space, or set HF_HOME to a folder on a larger disk."
        )
    files = f"{len(missing)} file{'s' if len(missing) > 1 else ''}"
    sys.stderr.write(
        f"Downloading {repo} once: {in_words(total)} in {files}, to {cache} "
        f"({in_words(free)} are free there).\n"
    )
    sys.stderr.flush()


def in_words(size: int) -> str:
    """13.8 GB, or 260 MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _cached_instead(repo: str, error: Exception) -> Path:
    """Falls back to a complete copy in the cache: offline, or without the repo or access to it."""
    incomplete = ""
    for layout, folder in _in_cache(repo):
        missing = _missing(folder)
        if missing is None:
            logger.warning("The model %s comes from the cache: %s", repo, _summary(error))
            return folder
        incomplete = incomplete or f" (the copy there lacks {layout}{missing})"
    meant = meant_by(repo)
    question = f"Did you mean {meant}" if meant and meant != repo else "Is the name right"
    raise ModelNotFound(
        f"The model {repo!r} is not a folder here, nor is it complete in the Hugging Face cache{incomplete}, "
        f"and the hub did not provide it ({_summary(error)}). {question}, and is this machine online? "
        "For a gated or private repo, accept its terms on its page, then log in (hf auth login) or set "
        "HF_TOKEN. Without a network, name a folder that holds the checkpoint, or use tiny."
    ) from error


def cached_checkpoints() -> list[tuple[str, Path]]:
    """The complete checkpoints of gpt-oss in the cache: the repo and the folder of each."""
    from huggingface_hub.constants import HF_HUB_CACHE

    checkpoints = []
    for path in sorted(Path(HF_HUB_CACHE).glob("models--*--*")):
        repo = path.name.removeprefix("models--").replace("--", "/", 1)
        complete = [folder for _, folder in _in_cache(repo) if _missing(folder) is None]
        with suppress(CheckpointError):  # of another kind of model
            if complete and read_config(complete[0] / "config.json"):
                checkpoints.append((repo, complete[0]))
    return checkpoints


def _in_cache(repo: str) -> list[tuple[str, Path]]:
    """The folders of a repo in the cache that have a config.json, by layout.

    Not snapshot_download(local_files_only=True): depending on its version, it takes a snapshot without
    weights for complete, or one of a single layout for incomplete.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        configs = [(layout, try_to_load_from_cache(repo, f"{layout}config.json")) for layout in LAYOUTS]
    except ValueError:  # a name that the hub does not allow; the caller reports the hub's own error
        return []
    current = [(layout, Path(config).parent) for layout, config in configs if isinstance(config, str)]
    # Then of all snapshots, the newest first: the cache may name an interrupted update.
    snapshots = (Path(HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "snapshots").glob("*")
    newest = sorted(snapshots, key=lambda path: path.stat().st_mtime, reverse=True)
    folders = [(layout, snapshot / layout) for snapshot in newest for layout in LAYOUTS]
    older = [(layout, inner) for layout, inner in folders if (inner / "config.json").is_file()]
    return list(dict.fromkeys([*current, *older]))


def _missing(folder: Path) -> str | None:
    """A file that this checkpoint lacks; None if it is complete."""
    if (folder / INDEX).is_file():
        return next((name for name in _indexed(folder / INDEX) if not (folder / name).is_file()), None)
    weights = [path.name for path in folder.glob("*.safetensors") if path.is_file()]
    if not weights:
        return "its .safetensors files"
    # Only the index states how many files the weights have.
    return INDEX if any("-of-" in name for name in weights) else None


def _indexed(index: Path) -> list[str]:
    """An index that cannot be read counts as missing."""
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [f"a readable {INDEX}"]


def _summary(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
