"""From a model's name to its engine.

Takes the value of `--model` and returns an `Engine`. A table maps prefixes of names to factories; each
factory imports its dependencies when called, so that a script needs no torch and a folder no hub.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference.engine import CheckpointError, Engine, ModelNotFound
from inference.local.options import LocalOptions
from inference.naming.foreign import foreign_file, foreign_folder
from inference.naming.model_names import EMBEDDED, REPO_ID, from_hub, meant_by
from inference.naming.unserved import UNSERVED
from inference.paths import UnknownHome, path_of
from inference.remote.address import RemoteOptions

KINDS = (
    "tiny (embedded), a folder with a checkpoint, a Hugging Face repo (owner/name), llama:URL, sglang:URL or "
    "vllm:URL (a server that runs elsewhere), scripted:FILE, or random:SHAPE (random weights, for measuring)"
)
DEMO = "A 16M-parameter demo model that knows next to nothing: "


@dataclass(frozen=True, slots=True)
class Request:
    """What to load, and how."""

    model: str
    rest: str  # the name after the prefix
    device: str | None
    context: int | None
    progress: bool | None
    options: LocalOptions | None
    remote: RemoteOptions | None


def load(
    model: str,
    *,
    device: str | None = None,
    context: int | None = None,
    progress: bool | None = None,
    options: LocalOptions | None = None,
    remote: RemoteOptions | None = None,
) -> Engine:
    """The engine of a model; with `progress` None a bar appears if stderr is a terminal.

    `options` apply to local models, `remote` to engines of other programs.
    """
    if options is not None and options.draft_head is not None and not runs_here(model):
        raise CheckpointError(
            f"--speculation eagle:{options.draft_head} has no effect here: {model} does not run in this "
            "process. Leave it out, and configure speculation where the model runs."
        )
    known = () if from_hub(model) else PREFIXES.items()
    prefix, factory = next(((p, f) for p, f in known if model.startswith(p)), ("", _local))
    rest = model.removeprefix(prefix)
    return factory(Request(model, rest, device, context, progress, options, remote))


def runs_here(model: str) -> bool:
    """Whether the engine of this name computes in this process, and so needs torch."""
    return not model.startswith(("scripted:", *REMOTE, *UNSERVED))


def repo_of(model: str) -> str | None:
    """The repo of the hub from which the model of this name comes; None for every other kind of name."""
    if repo := from_hub(model):
        return repo
    path = _path_of(model)
    elsewhere = model.startswith(tuple(PREFIXES)) or _holds(path.exists)
    return model if REPO_ID.fullmatch(model) and not elsewhere else None


def checkpoint_folder(model: str) -> Path:
    """The folder of a local model; downloaded or made if necessary."""
    if model == EMBEDDED:
        from inference import tiny

        return tiny.checkpoint()
    path = _path_of(model)
    if model and _holds(path.is_dir):
        if problem := foreign_folder(path):
            raise CheckpointError(problem)
        return path
    if _holds(path.is_file):
        if problem := foreign_file(path):
            raise CheckpointError(problem)
        raise ModelNotFound(
            f"{path} is a file. Give the folder of the checkpoint, or scripted:{path} for a script."
        )
    if REPO_ID.fullmatch(model):
        from inference.hub import download

        return download(model)
    meant = meant_by(model)
    did_you_mean = f" Did you mean {meant}?" if meant and meant != model else ""
    raise ModelNotFound(
        f"There is no model {model!r}: no such folder, and no other kind of name fits.{did_you_mean} "
        f"Known: {KINDS}."
    )


def _path_of(model: str, what: str = "folder") -> Path:
    try:
        return path_of(model, what)
    except UnknownHome as error:
        raise ModelNotFound(str(error)) from error


def _holds(check: Callable[[], bool]) -> bool:
    """A path that no file could have does not exist."""
    try:
        return check()
    except (OSError, ValueError):
        return False


def _scripted(request: Request) -> Engine:
    from inference.scripted import load_scripted

    return load_scripted(request.rest, context=request.context)


def _random(request: Request) -> Engine:
    from inference.local.random_model import load_random

    return load_random(
        request.rest,
        device=request.device,
        context=request.context,
        progress=request.progress,
        options=request.options,
    )


def _remote(request: Request) -> Engine:
    from inference.remote.loading import ANY, load_remote

    kind, _, url = request.model.partition(":")
    if kind in ("http", "https"):  # an address without a kind
        kind, url = ANY, request.model
    return load_remote(kind, url, context=request.context, options=request.remote)


def _unserved(request: Request) -> Engine:
    prefix = next(each for each in UNSERVED if request.model.startswith(each))
    raise ModelNotFound(f"{prefix} is not supported. {UNSERVED[prefix]}")


def _local(request: Request) -> Engine:
    folder = checkpoint_folder(request.model)
    from inference.local.engine import load_local

    return load_local(
        folder,
        name=_served_name(request.model),
        given=request.model,
        about=DEMO if request.model == EMBEDDED else "",
        is_demo=request.model == EMBEDDED,
        loops=request.model == EMBEDDED,
        device=request.device,
        context=request.context,
        progress=request.progress,
        options=request.options,
    )


def _served_name(model: str) -> str:
    """`openai/gpt-oss-20b` and `/models/gpt-oss-20b/` are both served as `gpt-oss-20b`.

    The name of a link, not of its target: that is often a snapshot in a cache, named by a hash.
    """
    return os.path.basename(os.path.abspath(_path_of(model))) or model


REMOTE = ("llama:", "vllm:", "sglang:", "http://", "https://")
# A prefix ends in a colon, which neither a repo id nor a usual folder contains.
PREFIXES: dict[str, Callable[[Request], Engine]] = {
    "scripted:": _scripted,
    "random:": _random,
    **dict.fromkeys(REMOTE, _remote),
    **dict.fromkeys(UNSERVED, _unserved),
}
