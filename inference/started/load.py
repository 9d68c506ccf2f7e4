"""From a model and a program to an engine whose server this process has started."""

import sys
from dataclasses import replace

from inference.engine import CheckpointError, ModelNotFound
from inference.options import EngineOptions
from inference.paths import existing
from inference.remote.engine import RemoteEngine
from inference.remote.loading import load_remote
from inference.remote.wire import Wire
from inference.started.choice import names_gguf, weights_size
from inference.started.machine import this_machine
from inference.started.process import StartedProgram
from inference.started.programs import LLAMA, Program, command

_PUBLISHED, _AS_GGUF = "openai/gpt-oss-", "ggml-org/gpt-oss-{}-GGUF"


def load_started(
    program: Program, wire: type[Wire], model: str, options: EngineOptions, progress: bool | None
) -> RemoteEngine:
    """`model`: a file or a folder, or a repo, which the program downloads. Raises `InferenceError`."""
    name = gguf_repo(model) or model if program is LLAMA else model
    _check(program, name)
    words = command(program, name, options, this_machine(options.device), weights_size(model))
    started = StartedProgram(program, words, wire.health, options)
    try:
        started.start(progress)
        options = replace(options, engine_key=started.key)
        engine = load_remote([([wire], started.url)], options, keeper=started)
    except BaseException:
        started.close()
        raise
    started.watch()
    return engine


def gguf_repo(model: str) -> str | None:
    """The repo from which llama-server downloads a model; None for one of this machine, or another repo."""
    if existing(model):
        return None
    if model.startswith(_PUBLISHED):
        return _AS_GGUF.format(model.removeprefix(_PUBLISHED))
    return model if names_gguf(model) and "/" in model else None


def _check(program: Program, model: str) -> None:
    path = existing(model)
    if sys.platform == "win32":
        raise CheckpointError(f"On Windows, start {program.title} yourself, and name it: {program.kind}:URL")
    if program is LLAMA and not names_gguf(model):
        raise CheckpointError(
            f"llama-server reads GGUF files, not {model}. Make one: "
            f"gpt-oss-server export gguf FILE --model {model}"
        )
    if program is LLAMA and path is None and gguf_repo(model) is None:
        raise ModelNotFound(f"There is no file {model}.")
    if program is not LLAMA and path and path.is_file():
        raise CheckpointError(f"{program.title} reads checkpoints, not the file {model}. Add --engine llama.")
    if program is not LLAMA and path and path.is_dir() and not (path / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{program.title} needs tokenizer.json next to the weights, and {model} has none. Copy it from "
            "the repo of the checkpoint, or add --engine built-in."
        )
