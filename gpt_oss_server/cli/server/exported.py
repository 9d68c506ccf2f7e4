"""A checkpoint as the GGUF file that llama-server reads, written once and kept in the cache."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_oss_server.settings import Settings
from inference.backends.checkpoints import checkpoint_folder
from inference.backends.hub import cached_checkpoints
from inference.backends.table import is_checkpoint
from inference.started.choice import chosen_program, names_gguf
from inference.started.load import gguf_repo
from inference.started.programs import LLAMA
from inference.tiny import cache_folder

if TYPE_CHECKING:
    from inference.export.gguf_file import Vocabulary


def with_gguf(settings: Settings, *, progress: bool | None = None) -> Settings:
    """Raises `InferenceError`. Where the hub has a GGUF file, llama-server downloads that."""
    model = settings.model
    if not is_checkpoint(model) or chosen_program(model, settings) is not LLAMA or names_gguf(model):
        return settings
    LLAMA.path(settings.engine_program)  # before the minutes that a large file takes
    if gguf_repo(model) and model not in dict(cached_checkpoints()):
        return settings
    folder = checkpoint_folder(model)
    name = Path(model).expanduser().resolve().name
    path = cache_folder() / "gguf" / _digest(folder) / f"{name}.gguf"
    if not path.exists():
        from inference.export.gguf_file import write_gguf

        path.parent.mkdir(parents=True, exist_ok=True)
        write_gguf(folder, path, harmony_vocabulary(), name=name, progress=progress)
    return replace(settings, model=str(path))


def _digest(folder: Path) -> str:
    """Another one for other weights, which have another time."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def harmony_vocabulary() -> Vocabulary:
    from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, VOCABULARY_SIZE, load_encoding
    from inference.export.gguf_file import Vocabulary

    encoding = load_encoding()
    ordinary = [encoding.token_bytes([token]) for token in range(FIRST_SPECIAL)]
    special = {token: encoding.decode([token]) for token in range(FIRST_SPECIAL, VOCABULARY_SIZE)}
    return Vocabulary(ordinary, special)
