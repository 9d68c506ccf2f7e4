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
    **dict.fromkeys(("run", "generate"), "chat"),
    **dict.fromkeys(("start", "server", "llama-server"), "serve"),
    **dict.fromkeys(("ls", "models", "ps", "show"), "list"),
    "download": "pull",
    "benchmark": "bench",
    "collect-env": "doctor",
    "info": "version",
}
_REMOVE = "Models are folders, which `gpt-oss-server list` names: remove the folder."
NO_COMMANDS = {
    "stop": "A server ends with Ctrl-C, or SIGTERM to its process.",
    "rm": _REMOVE,
    "delete": _REMOVE,
    "create": "A server serves one checkpoint; --served-model-name gives it further names.",
    "cp": "--served-model-name gives a model further names.",
    "quantize": "gpt-oss checkpoints are quantized already (MXFP4).",
}

_ONE_CARD = Other("the model runs on one device, which --device chooses")
_READ = Other("calls and reasoning are always read")
# By the flag's name. Values are left out of the corrected line together with their flags.
FLAGS = {
    **dict.fromkeys(("--tensor-parallel-size", "-tp", "-ngl", "--n-gpu-layers"), _ONE_CARD),
    "--gpu-memory-utilization": Other("--kv-memory SIZE sets the memory for keys and values"),
    **dict.fromkeys(("--tool-call-parser", "--reasoning-parser"), _READ),
    "--enable-auto-tool-choice": _READ._replace(value=False),
    **dict.fromkeys(("--dtype", "--flash-attn", "-fa"), Other("the checkpoint decides")),
    "--jinja": Other("Harmony is built in", value=False),
    "--think": Other("here --effort", instead="--effort"),
    "--hidethinking": Other("here --no-reasoning", value=False, instead="--no-reasoning"),
}
