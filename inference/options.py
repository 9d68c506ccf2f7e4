"""What an operator chooses for an engine: one row for each choice.

A row is the field that engines read. In the server it is also the flag, the variable, the check and the line
of the docs. Imports no framework.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class Values:
    """Which values a row takes: one of the kinds of `gpt_oss_server/settings/options.py`, by its name."""

    def __init__(self, kind: str, *arguments: Any, optional: bool = False) -> None:
        self.kind, self.arguments, self.optional = kind, arguments, optional  # optional: or None


def option(
    default: T,
    values: Any,
    help: str,
    *,
    also: tuple[str, ...] = (),
    common: bool = False,
    secret: str = "no",
) -> T:
    """`values`: as above, or such a kind. `also`: other programs' names. `common`: a help shows it first."""
    row = {"kind": values, "help": help, "also": also, "common": common, "secret": secret}
    return field(default=default, metadata=row)


AUTO = "auto"
BUILT_IN = "built-in"
PRECISIONS = ("auto", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`auto` is the type that the device computes in: bf16 on a GPU, float32 on a CPU."""

    weights: str = "auto"  # of attention and the head; experts stay as the checkpoint has them
    kv: str = "auto"  # keys and values

    @property
    def flags(self) -> str:
        """The flags that choose FP8, as a user writes them; empty if none does."""
        flags = (("--weights fp8", self.weights), ("--kv-dtype fp8", self.kv))
        return " and ".join(flag for flag, value in flags if value == "fp8")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Each engine reads the rows that concern it."""

    engine: str = option(
        AUTO,
        Values("choice", AUTO, BUILT_IN, "llama", "vllm", "sglang"),
        "What runs a checkpoint: the built-in engine, or a program that the server starts and ends: "
        "llama-server, vLLM or SGLang. `auto` is the built-in engine, but llama-server for a GGUF file and, "
        "if it is installed, for a large model that no card here holds.",
        common=True,
    )
    engine_program: str | None = option(
        None,
        Values("text", "PATH", optional=True),
        "That program, if it is not on the PATH by its usual name.",
    )
    engine_args: str | None = option(
        None, Values("text", "FLAGS", optional=True), "Further flags for that program, in quotes."
    )
    engine_log: str | None = option(
        None,
        Values("text", "FILE", optional=True),
        "The file to which that program's output is appended; `none` keeps its last lines, for errors.",
    )
    device: str = option(
        "auto",
        Values("choice", "auto", "cpu", "cuda"),
        "Where the model runs; `auto` uses a GPU if there is one.",
        common=True,
    )
    context: int | None = option(
        None,
        Values("whole", "TOKENS", 1, optional=True),
        "The context length; `none` is the model's own.",
        also=("-c", "--ctx-size", "--max-model-len"),
        common=True,
    )
    max_concurrent: int | None = option(
        None,
        Values("whole", "COUNT", 1, optional=True),
        "How many requests may generate simultaneously; `none` is 32 on a CPU, 64 on a GPU.",
        also=("-np", "--parallel", "--max-num-seqs"),
        common=True,
    )
    max_waiting: int = option(
        1000,
        Values("whole", "COUNT", 0),
        "How many further requests may wait; any more get 503 with `retry-after`.",
    )
    kv_memory: int | None = option(
        None,
        Values("size", optional=True),
        "The memory for keys and values; `none` is a quarter of the free memory, on a GPU most of it.",
        also=("--kv-cache-memory-bytes",),
    )
    cache_dir: str | None = option(
        None,
        Values("text", "FOLDER", optional=True),
        "A folder for what prompts computed, so that a prompt that begins like an earlier one is restored, "
        "after a restart too; several servers may share it.",
    )
    cache_disk: int = option(20 << 30, Values("size"), "The most bytes of that folder.")
    cache_memory: int | None = option(
        None,
        Values("size", optional=True),
        "Memory of the machine for the same, before the folder or without one; for a GPU with little memory.",
    )
    weights: str = option(
        "auto",
        Values("choice", *PRECISIONS),
        "`fp8` stores attention's weights and the head in 8 bits, for a GPU of Ada, Hopper or later: a third "
        "less to read, slightly less exact (`python -m inference.bench --weights fp8 --compare bf16` "
        "measures it; not yet run on a card). `auto` is bf16, on a CPU float32; experts stay in 4 bits.",
    )
    kv_dtype: str = option(
        "auto",
        Values("choice", *PRECISIONS),
        "`fp8` stores keys and values in 8 bits, on the same GPUs: twice the tokens in the same memory, less "
        "exact (not yet run on a card). `auto` is bf16, on a CPU float32.",
        also=("--kv-cache-dtype",),
    )
    speculation: bool | str = option(
        False,
        Values("switch_or", "ngram", "eagle", "FOLDER"),
        "Whether to guess tokens and check them in one step, which changes the time of an answer, not its "
        "text. `ngram` (or `on`) guesses what followed the same words before; `eagle:FOLDER` guesses with a "
        "draft head (EAGLE-3, as published for gpt-oss; not yet run on a card).",
    )
    engine_key: str | None = option(
        None,
        Values("text", "KEY", optional=True),
        "The key of a server that runs elsewhere; prefer a file (`--engine-key-file`) or the variable.",
        secret="whole",
    )
    engine_connect_timeout: float = option(
        10.0, Values("duration"), "How long a connection to that server may take."
    )
    engine_idle_timeout: float = option(600.0, Values("duration"), "How long that server may send nothing.")

    @property
    def precision(self) -> Precision:
        return Precision(weights=self.weights, kv=self.kv_dtype)

    @property
    def draft_head(self) -> str | None:
        """The folder of a draft head."""
        return self.speculation.partition(":")[2] if isinstance(self.speculation, str) else None
