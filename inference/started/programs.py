"""The programs that can be started as engines: how each is found, installed and called."""

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from inference.engine import CheckpointError, ModelNotFound
from inference.options import EngineOptions
from inference.started.machine import Machine, llama_sizes, parallel_cards

_MODEL = "MODEL"


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    kind: str  # of its wire, and its value of `--engine`
    title: str
    name: str  # on the path
    key: str | None  # the variable with the key that its clients need
    ways: dict[str, str]  # how to install it, by the program that does
    elsewhere: str  # where these are missing
    words: tuple[str, ...] = ()  # of its command
    flags: tuple[str, ...] = ()  # for the context, the requests at once and the cards; it finds out the rest

    def found(self, chosen: str | None = None) -> str | None:
        return shutil.which(os.path.expanduser(chosen or self.name))

    def path(self, chosen: str | None) -> str:
        """Raises `ModelNotFound`."""
        if path := self.found(chosen):
            return path
        if chosen is not None:
            raise ModelNotFound(f"--engine-program {chosen} is no program that can be run here.")
        raise ModelNotFound(f"{self.title} is not on the PATH of this machine. {self.how_to_install()}")

    def how_to_install(self) -> str:
        ways = [way for tool, way in self.ways.items() if shutil.which(tool)] or [self.elsewhere]
        return f"Install it ({', or '.join(ways)}), or name the program with --engine-program."


LLAMA = Program(
    "llama",
    "llama-server",
    "llama-server",
    "LLAMA_API_KEY",
    {
        "brew": "brew install llama.cpp",
        "winget": "winget install llama.cpp",
        "conda": "conda install -c conda-forge llama.cpp",
        "mamba": "mamba install -c conda-forge llama.cpp",
        "nix": "nix profile install nixpkgs#llama-cpp",
        "port": "sudo port install llama.cpp",
    },
    "a build for each system is at https://github.com/ggml-org/llama.cpp/releases",
)
VLLM = Program(
    "vllm",
    "vLLM",
    "vllm",
    "VLLM_API_KEY",
    {"uv": "uv tool install vllm"},
    "pip install vllm",
    ("serve", _MODEL, "--generation-config", "vllm", "--enable-prompt-tokens-details"),
    ("--max-model-len", "--max-num-seqs", "--tensor-parallel-size"),
)
SGLANG = Program(
    "sglang",
    "SGLang",
    "sglang",
    None,
    {"uv": "uv tool install sglang"},
    "pip install sglang",
    ("serve", "--model-path", _MODEL, "--incremental-streaming-output"),
    ("--context-length", "--max-running-requests", "--tp-size"),
)
PROGRAMS = {program.kind: program for program in (LLAMA, VLLM, SGLANG)}


def command(
    program: Program, model: str, options: EngineOptions, machine: Machine, size: int | None
) -> list[str]:
    """The words of its command line, without an address. `size`: bytes of the weights, if known."""
    path = program.path(options.engine_program)
    if program is LLAMA:
        return [path, *_of_llama(model, options, machine, size), *further(options)]
    cards = parallel_cards(machine)
    values = (options.context, options.max_concurrent, cards if cards > 1 else None)
    chosen = [
        (flag, str(value)) for flag, value in zip(program.flags, values, strict=True) if value is not None
    ]
    words = [model if word == _MODEL else word for word in program.words]
    return [path, *words, *chain(*chosen), *further(options)]


def further(options: EngineOptions) -> list[str]:
    """The words of `--engine-args`."""
    try:
        return shlex.split(options.engine_args or "")
    except ValueError as error:
        raise CheckpointError(f"--engine-args {options.engine_args!r} cannot be read: {error}.") from error


def _of_llama(model: str, options: EngineOptions, machine: Machine, size: int | None) -> Sequence[str]:
    slots, context, whole = llama_sizes(options, machine, size)
    is_file = Path(model).is_file()
    name = Path(model).stem if is_file else model.rpartition("/")[2].removesuffix("-GGUF")
    sizes = f"-np {slots} -c {slots * (context + 1)} -t {machine.threads} -tb {machine.threads}".split()
    words = ["-m" if is_file else "-hf", model, "--alias", name, *sizes]
    return [*words, *(["--swa-full"] if whole else [])]
