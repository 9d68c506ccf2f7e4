"""States what a download costs before it begins, and refuses one that the disk cannot hold.

Takes the hub's facts on a repo and the names of the files that are needed; writes a line on stderr.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inference.engine import CheckpointError


def announce(repo: str, info: Any, needed: Sequence[str]) -> None:
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
