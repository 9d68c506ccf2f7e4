"""Which engine runs a model: the built-in one, or a program that the server starts."""

from inference.engine import CheckpointError
from inference.foreign import is_gguf
from inference.options import AUTO, EngineOptions
from inference.paths import existing
from inference.started.machine import this_machine
from inference.started.programs import LLAMA, PROGRAMS, Program

SIZES = {"gpt-oss-20b": 13.8e9, "gpt-oss-120b": 65.3e9}
"""Bytes of the published models' weights, which are also their downloads."""
WITH_CONTEXTS = 1.2
"""Of the weights' bytes: with keys and values."""
_SMALL = 4e9  # bytes of weights with which the built-in engine answers well on any machine
_BUILT_IN = ("weights", "kv_dtype", "kv_memory", "speculation")
_OF_PROGRAMS = ("engine_program", "engine_args", "engine_log")


def chosen_program(model: str, options: EngineOptions) -> Program | None:
    """Raises `CheckpointError` for options that the engine does not have."""
    program = _chosen(model, options)
    for name in _OF_PROGRAMS if program is None else _BUILT_IN:
        if getattr(options, name) == getattr(EngineOptions, name):
            continue
        flag = f"--{name.replace('_', '-')}"
        if program is None:
            raise CheckpointError(
                f"{flag} is for a program that the server starts, and {model} runs in the server. "
                "Add --engine."
            )
        raise CheckpointError(
            f"{flag} is for the built-in engine, and {model} runs on {program.title}. Give its own flags in "
            "--engine-args, or add --engine built-in."
        )
    return program


def slow_here(model: str, options: EngineOptions) -> str | None:
    """A sentence on what would run a model faster than the built-in engine, which `auto` has chosen."""
    if options.engine != AUTO or _is_served_well(model, options):
        return None
    return f"No card here holds {model}, and the built-in engine is slow without. {LLAMA.how_to_install()}"


def weights_size(model: str) -> int | None:
    """Bytes, where they are known before a download."""
    if path := existing(model):
        return sum(file.stat().st_size for file in path.glob("**/*.safetensors")) or path.stat().st_size
    return next((int(size) for name, size in SIZES.items() if name in model.lower()), None)


def _chosen(model: str, options: EngineOptions) -> Program | None:
    if options.engine != AUTO:
        return PROGRAMS.get(options.engine)
    if names_gguf(model):
        return LLAMA
    is_slow = not _is_served_well(model, options) and LLAMA.found(options.engine_program)
    return LLAMA if is_slow else None


def _is_served_well(model: str, options: EngineOptions) -> bool:
    """By the built-in engine, or by no other, as its own options are set."""
    size = weights_size(model) or 0
    if size < _SMALL or any(getattr(options, name) != getattr(EngineOptions, name) for name in _BUILT_IN):
        return True
    return size < this_machine(options.device).of_cards


def names_gguf(model: str) -> bool:
    """A GGUF file, or a repo of such files."""
    path = existing(model)
    return is_gguf(path) if path else model.lower().endswith("gguf")
