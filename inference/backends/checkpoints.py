"""Models that run in this process: the embedded one, a folder with a checkpoint, or a repo of the hub."""

import os
from pathlib import Path
from typing import Any

from inference.backends.names import meant_by
from inference.backends.table import CHECKPOINTS, EMBEDDED, backend_for, known_names
from inference.engine import CheckpointError, Engine, EngineInfo, ModelNotFound
from inference.foreign import foreign_file, foreign_folder
from inference.options import EngineOptions
from inference.paths import REPO_ID, existing, expanded_path, from_hub

DEMO = "A 16M-parameter demo model that knows next to nothing: "


def load(model: str, options: EngineOptions, progress: bool | None) -> Engine:
    folder = checkpoint_folder(model)
    from inference.local.engine import load_local

    return load_local(folder, options, given=model, progress=progress, **_facts(model))


def info_of(model: str, options: EngineOptions) -> EngineInfo:
    """What is known of a model before its weights are read."""
    folder = checkpoint_folder(model)
    from inference.local.engine import describe_checkpoint

    return describe_checkpoint(folder, options, given=model, **_facts(model))


def _facts(model: str) -> dict[str, Any]:
    is_demo = model == EMBEDDED
    about = DEMO if is_demo else ""
    return {"name": _served_name(model), "about": about, "is_demo": is_demo, "loops": is_demo}


def hub_repo(model: str) -> str | None:
    """The repo of the hub from which the model of this name comes; None for every other kind of name."""
    if repo := from_hub(model):
        return repo
    elsewhere = backend_for(model) is not CHECKPOINTS or existing(model)
    return model if REPO_ID.fullmatch(model) and not elsewhere else None


def checkpoint_folder(model: str) -> Path:
    """The folder of a local model; downloaded or made if necessary."""
    if model == EMBEDDED:
        from inference import tiny

        return tiny.checkpoint()
    path = _path(model)
    is_there = bool(model) and existing(model) is not None
    if is_there and path.is_dir():
        if problem := foreign_folder(path):
            raise CheckpointError(problem)
        return path
    if is_there and path.is_file():
        if problem := foreign_file(path):
            raise CheckpointError(problem)
        raise ModelNotFound(
            f"{path} is a file. Give the folder of the checkpoint, or scripted:{path} for a script."
        )
    if REPO_ID.fullmatch(model):
        from inference.backends.hub import download

        return download(model)
    meant = meant_by(model)
    did_you_mean = f" Did you mean {meant}?" if meant and meant != model else ""
    raise ModelNotFound(
        f"There is no model {model!r}: no such folder, and no other kind of name fits.{did_you_mean} "
        f"Known: {known_names()}."
    )


def _path(model: str) -> Path:
    return expanded_path(model, failure=ModelNotFound)


def _served_name(model: str) -> str:
    """`openai/gpt-oss-20b` and `/models/gpt-oss-20b/` are both served as `gpt-oss-20b`. The name of a link,
    not of its target: that is often a snapshot in a cache, named by a hash."""
    return os.path.basename(os.path.abspath(_path(model))) or model
