"""The embedded model: an ordinary checkpoint folder in the user's cache, made at first use.

`checkpoint()` returns the folder. The package's compact file expands into it (expand.py); its name contains
that file's hash, so that another model makes another folder. The model card (README.md) states what the model
can do, and which commit has the recipe that trained it.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from inference.engine import CheckpointError
from inference.paths import expanded_path, open_to_others

LAYOUT = "1"  # of the expanded files: raise it when the same compact file expands differently
MANIFEST = "made.json"
COMPACT = Path(__file__).parent / "tiny.safetensors"
# Seconds after which an unfinished folder counts as left by a killed process.
LEFT_OVER = 3600.0


def cache_folder() -> Path:
    """$GPT_OSS_SERVER_CACHE, else gpt-oss-server in the user's cache folder."""
    chosen = os.environ.get("GPT_OSS_SERVER_CACHE")
    if chosen:
        return expanded_path(chosen, failure=lambda why: CheckpointError(f"GPT_OSS_SERVER_CACHE: {why}"))
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "gpt-oss-server"
    except RuntimeError as error:
        raise CheckpointError(
            "This user has no home folder for the embedded model's files. "
            "Set GPT_OSS_SERVER_CACHE to a writable folder."
        ) from error


def checkpoint() -> Path:
    """The folder of the embedded model; made first if it is missing or incomplete."""
    with COMPACT.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache_folder() / f"tiny-{LAYOUT}-{digest[:12]}"
    if not _is_whole(folder):
        _make(folder)
    return folder


def _make(folder: Path) -> None:
    """Writes to a temporary folder and renames it, so that the final folder is always complete."""
    from safetensors import SafetensorError  # raised when the disk is full

    from inference.tiny import expand

    sys.stderr.write(f"Unpacking the embedded model once: 260 MB, to {folder}.\n")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(folder.parent)
        new = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            expand.write_expanded(new)
            files = {path.name: {"size": path.stat().st_size} for path in sorted(new.iterdir())}
            (new / MANIFEST).write_text(json.dumps({"files": files}), encoding="utf-8")
            open_to_others(new, *new.iterdir())
            _put(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"The embedded model's files cannot be written to {folder.parent}: {error}. Set "
            "GPT_OSS_SERVER_CACHE to a writable folder with 300 MB of free space."
        ) from error


def _remove_left_over(parent: Path) -> None:
    """Removes unfinished folders of killed processes, which would take space for ever."""
    for new in parent.glob("tiny-*.*"):
        if time.time() - new.stat().st_mtime > LEFT_OVER:
            shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, folder: Path) -> None:
    try:
        new.rename(folder)
    except OSError:
        # Another process was faster, or the existing folder is damaged.
        if not _is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)


def _is_whole(folder: Path) -> bool:
    """Whether the files have the sizes that were written."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == fact["size"] for name, fact in files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False
