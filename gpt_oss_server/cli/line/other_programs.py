"""What users of vLLM, llama-server and Ollama type most, and what it is here: data only.

Flags that mean the same here are aliases in the table of settings.
"""

from __future__ import annotations

from typing import NamedTuple


class Other(NamedTuple):
    """A flag of another program: what to know about it here, and whether a value follows it."""

    reason: str
    value: bool = True
    instead: str = ""  # the flag to write in its place, if any


COMMANDS = {
    "run": "chat",
    "generate": "chat",
    "start": "serve",
    "server": "serve",
    "llama-server": "serve",
    "download": "pull",
    "ls": "list",
    "models": "list",
    "ps": "list",
    "show": "list",
    "benchmark": "bench",
    "collect-env": "doctor",
    "info": "version",
}
NO_COMMANDS = {
    "stop": "A server ends with Ctrl-C, or SIGTERM to its process.",
    "rm": "Models are folders, which `gpt-oss-server list` names: remove the folder.",
    "delete": "Models are folders, which `gpt-oss-server list` names: remove the folder.",
    "create": "A server serves one checkpoint; --served-model-name gives it further names.",
    "cp": "--served-model-name gives a model further names.",
    "quantize": "gpt-oss checkpoints are quantized already (MXFP4).",
}

_ONE_CARD = Other("the model runs on one device, which --device chooses")
_READ = Other("calls and reasoning are always read")
_CHECKPOINT = Other("the checkpoint decides")
# By the flag's name. Values are left out of the corrected line together with their flags.
FLAGS = {
    "--tensor-parallel-size": _ONE_CARD,
    "-tp": _ONE_CARD,
    "-ngl": _ONE_CARD,
    "--n-gpu-layers": _ONE_CARD,
    "--gpu-memory-utilization": Other("--kv-memory SIZE sets the memory for keys and values"),
    "--tool-call-parser": _READ,
    "--reasoning-parser": _READ,
    "--enable-auto-tool-choice": _READ._replace(value=False),
    "--dtype": _CHECKPOINT,
    "--flash-attn": _CHECKPOINT,
    "-fa": _CHECKPOINT,
    "--jinja": Other("Harmony is built in", value=False),
    "--think": Other("here --effort", instead="--effort"),
    "--hidethinking": Other("here --no-reasoning", value=False, instead="--no-reasoning"),
}
