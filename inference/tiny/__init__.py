"""The embedded model: an ordinary checkpoint folder in the user's cache, made at first use.

`checkpoint()` is all that others call: out comes a folder in the Hugging Face layout that any loader
reads. What is in it comes from the compact file of the package (expand.py). The folder's name holds that
file's hash: when the model changes, older folders are left alone and a new one is made. What it can
do and how to retrain it is in the model card beside this file (README.md); `recipe/` is how it was trained.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from inference.engine import CheckpointError, ModelNotFound
from inference.paths import path_of

LAYOUT = "1"  # of what is written: to be raised when the same compact file is expanded in another way
MANIFEST = "made.json"
COMPACT = Path(__file__).parent / "tiny.safetensors"
# Seconds after which a folder that is still being made was left by a process that was killed.
LEFT_OVER = 3600.0


def cache_folder() -> Path:
    """$GPT_OSS_SERVER_CACHE, else gpt-oss-server in the user's cache folder."""
    chosen = os.environ.get("GPT_OSS_SERVER_CACHE")
    if chosen:
        try:
            return path_of(chosen)
        except ModelNotFound as error:
            raise CheckpointError(f"GPT_OSS_SERVER_CACHE: {error}") from error
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "gpt-oss-server"
    except RuntimeError as error:
        raise CheckpointError(
            "This user has no home folder, where the embedded model's files would be put. "
            "Set GPT_OSS_SERVER_CACHE to a folder that can be written to."
        ) from error


def checkpoint() -> Path:
    """The folder of the embedded model; made first if it is not there or not whole."""
    folder = cache_folder() / f"tiny-{_key()}"
    if not _is_whole(folder):
        _make(folder)
    return folder


def _write(folder: Path) -> None:
    """Writes the checkpoint's files into an empty folder."""
    from inference.tiny.expand import write_expanded

    write_expanded(folder)


def _key() -> str:
    return f"{LAYOUT}-{_sha256(COMPACT)[:12]}"


def _make(folder: Path) -> None:
    """In a folder beside it first, then renamed: who finds the folder finds it whole."""
    from safetensors import SafetensorError  # which it raises where the disk is full

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(folder.parent)
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            _write(made)
            (made / MANIFEST).write_text(json.dumps({"files": _facts(made)}), encoding="utf-8")
            _open_to_others(made)
            _put(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"The embedded model's files cannot be written to {folder.parent}: {error}. Set "
            "GPT_OSS_SERVER_CACHE to a folder that can be written to and has 300 MB of room."
        ) from error


def _remove_left_over(parent: Path) -> None:
    """What was being made when its process was killed would take its room for ever."""
    for made in parent.glob("tiny-*.*"):
        if time.time() - made.stat().st_mtime > LEFT_OVER:
            shutil.rmtree(made, ignore_errors=True)


def _open_to_others(made: Path) -> None:
    """As files usually are: an image that is built as root may run as somebody else."""
    mask = os.umask(0)  # there is no other way to read it
    os.umask(mask)
    for path in made.iterdir():
        path.chmod(0o666 & ~mask)
    made.chmod(0o777 & ~mask)


def _put(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        # Another process was quicker, or the folder there is broken.
        if not _is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)


def _is_whole(folder: Path) -> bool:
    """Files are those that were written: by size and time; where these differ, by their hashes."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return all(_is_unchanged(folder / name, fact) for name, fact in files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_unchanged(path: Path, fact: dict[str, Any]) -> bool:
    stat = path.stat()
    if stat.st_size != fact["size"]:
        return False
    return bool(stat.st_mtime_ns == fact["mtime_ns"] or _sha256(path) == fact["sha256"])


def _facts(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        path.name: {
            "size": path.stat().st_size,
            "mtime_ns": path.stat().st_mtime_ns,
            "sha256": _sha256(path),
        }
        for path in sorted(folder.iterdir())
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
