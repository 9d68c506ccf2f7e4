"""The table of backends: how a model's name begins, and which file of this folder makes its engine.

Loading, suggestions for wrong names, help texts, errors and the checks of a machine derive from the rows. A
file is imported when a model of its kind is loaded, so that a script needs no torch and a folder no hub.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

from inference.engine import CheckpointError, Engine, ModelNotFound
from inference.on_demand import Pool
from inference.options import EngineOptions
from inference.paths import from_hub
from inference.started.choice import chosen_program, slow_here
from inference.torch_start import let_idle_threads_sleep

_log = logging.getLogger(__name__)

EMBEDDED = "tiny"


@dataclass(frozen=True, slots=True)
class Backend:
    """The file has `load(model, options, progress)` or, of a server, its `WIRE`."""

    prefix: str  # of its models' names, with a colon, which neither a repo id nor a usual folder has
    file: str
    rest: str  # what follows the prefix, for help texts
    about: str = ""
    is_server: bool = False  # of another program
    needs_torch: bool = False


BACKENDS = (
    Backend("llama:", "llama", "URL", is_server=True),
    Backend("vllm:", "vllm", "URL", is_server=True),
    Backend("sglang:", "sglang", "URL", is_server=True),
    Backend("scripted:", "scripted", "FILE"),
    Backend("random:", "random_model", "SHAPE", "random weights, for measuring", needs_torch=True),
)
CHECKPOINTS = Backend("", "checkpoints", "", needs_torch=True)  # every other name
FALLBACK = "|"  # between servers, of which a later one serves while the earlier ones cannot
ADDRESSES = ("http://", "https://")  # of servers whose kind is found out

_ELSE = "Serve the model with vLLM or SGLang, and name that server or a router in front of several: "
REFUSED = {
    "trtllm:": (
        "TensorRT-LLM's completions refuse fields that this server needs, and its list of models does not "
        f"state the context's length. {_ELSE}vllm:URL or sglang:URL."
    ),
    "dynamo:": f"Dynamo's completions return no token ids. {_ELSE}vllm:URL or sglang:URL.",
    "ollama:": (
        "Ollama returns no token ids. Serve the GGUF file with llama-server, and name that: llama:URL."
    ),
}
"""Servers of other programs that cannot be an engine: why, and what to name in their place."""

PREFIXES = tuple(row.prefix for row in BACKENDS)


def known_names(mark: str = "") -> str:
    """The kinds of names, for an error or a help text; `mark` encloses what a user writes."""
    forms = {row: f"{mark}{row.prefix}{row.rest}{mark}" for row in BACKENDS}
    servers = _joined(sorted(form for row, form in forms.items() if row.is_server), " or ")
    others = [f"{forms[row]} ({row.about})".removesuffix(" ()") for row in BACKENDS if not row.is_server]
    return (
        f"{mark}{EMBEDDED}{mark} (embedded), a folder with a checkpoint, a Hugging Face repo (owner/name), "
        f"{servers} (a server that runs elsewhere), {_joined(others, ', or ')}"
    )


def backend_for(model: str) -> Backend:
    return next((row for row in BACKENDS if model.startswith(row.prefix)), CHECKPOINTS)


def runs_here(model: str, options: EngineOptions) -> bool:
    """Whether the engine of this name computes in this process, and so needs torch."""
    if is_checkpoint(model):
        return chosen_program(model, options) is None
    return backend_for(model).needs_torch and not _servers(model) and not model.startswith(tuple(REFUSED))


def is_checkpoint(model: str) -> bool:
    """Whether the name is that of a model and not of a server or a script: `--engine` says what runs it."""
    row = backend_for(model)
    return row is CHECKPOINTS and not _servers(model) and not model.startswith(tuple(REFUSED))


def load(
    model: str,
    *,
    device: str | None = None,
    context: int | None = None,
    progress: bool | None = None,
    options: EngineOptions | None = None,
) -> Engine:
    """The engine of a model; with `progress` None a bar appears if stderr is a terminal. `device` and
    `context` replace those of `options`."""
    options = options or EngineOptions()
    if device is not None:
        options = replace(options, device=device)
    if context is not None:
        options = replace(options, context=context)
    for flag, what, given in (
        (f"--speculation {options.speculation}", "speculation", options.draft_head is not None),
        ("--cache-dir", "a cache", options.cache_dir is not None or options.cache_memory is not None),
    ):
        if given and not runs_here(model, options):
            raise CheckpointError(
                f"{flag} has no effect here: {model} does not run in this process. Leave it out, and "
                f"configure {what} where the model runs."
            )
    if refused := next((prefix for prefix in REFUSED if model.startswith(prefix)), None):
        raise ModelNotFound(f"{refused} is not supported. {REFUSED[refused]}")
    if _servers(model):
        from inference.remote.loading import load_remote

        return load_remote([_rank(part.strip()) for part in model.split(FALLBACK)], options)
    row = backend_for(model)
    if is_checkpoint(model):
        if program := chosen_program(model, options):
            from inference.started.load import load_started

            wire = _module(backend_for(f"{program.kind}:")).WIRE
            return load_started(program, wire, model, options, progress)
        if advice := slow_here(model, options):
            _log.warning(advice)
    engine: Engine = _module(row).load(model, options, progress)
    return engine


def load_later(
    model: str, options: EngineOptions, pool: Pool, *, idle: float | None = None, name: str = ""
) -> Engine:
    """The engine of a checkpoint that `pool` loads when it is needed and that runs here; any other kind is
    loaded now.

    What can be wrong without the weights raises `InferenceError` here, and a repo is downloaded.
    """
    if not is_checkpoint(model) or not runs_here(model, options):
        return load(model, options=options)
    info = _module(CHECKPOINTS).info_of(model, options)
    return pool.add(info, partial(load, model, options=options, progress=False), idle=idle, name=name)


def _servers(model: str) -> Sequence[Backend]:
    """The kinds that a server of this name may be; none where the name is no server's."""
    row = backend_for(model)
    if row.is_server:
        return (row,)
    is_address = model.startswith(ADDRESSES) and not from_hub(model)
    return tuple(other for other in BACKENDS if other.is_server) if is_address else ()


def _rank(model: str) -> tuple[list[Any], str]:
    """The wires of a name's servers, and their addresses."""
    if not (kinds := _servers(model)):
        raise ModelNotFound(f"What stands in for a server must be one, such as llama:URL, and not {model!r}.")
    return [_module(kind).WIRE for kind in kinds], model.removeprefix(backend_for(model).prefix)


def _module(row: Backend) -> Any:
    if row.needs_torch:
        let_idle_threads_sleep()
    return import_module(f"inference.backends.{row.file}")


def _joined(words: Sequence[str], last: str) -> str:
    return ", ".join(words[:-1]) + last + words[-1]
