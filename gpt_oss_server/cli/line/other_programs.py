"""What users of vLLM, llama-server and Ollama type, and what it is here: data only.

Flags that mean the same here are aliases in the table of settings. These are the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Other:
    """A flag of another program: what to know about it here, and whether a value follows it."""

    reason: str
    value: bool = True
    instead: str = ""  # what to write in its place, if anything


COMMANDS = {
    "run": "chat",
    "generate": "chat",
    "complete": "chat",
    "talk": "chat",
    "start": "serve",
    "server": "serve",
    "api": "serve",
    "api_server": "serve",
    "api-server": "serve",
    "llama-server": "serve",
    "download": "pull",
    "fetch": "pull",
    "ls": "list",
    "models": "list",
    "tags": "list",
    "ps": "list",
    "show": "list",
    "benchmark": "bench",
    "collect-env": "doctor",
    "check": "doctor",
    "info": "version",
}
NO_COMMANDS = {
    "stop": "A server ends with Ctrl-C, or SIGTERM to its process.",
    "rm": "Models are folders, which `gpt-oss-server list` names: remove the folder.",
    "delete": "Models are folders, which `gpt-oss-server list` names: remove the folder.",
    "create": "A server serves one checkpoint; --served-model-name gives it further names.",
    "cp": "--served-model-name gives a model further names.",
    "push": "This program uploads nothing.",
    "signin": "No account is needed. For gated repos: hf auth login.",
    "run-batch": "Send the requests of a batch to a running server: gpt-oss-server serve.",
    "quantize": "gpt-oss checkpoints are quantized already (MXFP4).",
}

_ONE_CARD = "the model runs on one device, which --device chooses"
_FORMAT = "Harmony is built in"
_READ = "calls and reasoning are always read"
_PER_REQUEST = "sampling is set in each request"
_ALWAYS = "always on here"
_CHECKPOINT = "the checkpoint decides"
_MEMORY = "--kv-memory SIZE sets the memory for keys and values"
_NO_LORA = "adapters are not served"
_DRAFTS = "here --speculation guesses from the text, and --speculation eagle:FOLDER with a draft head"
_LOGGED = "each request is one line of the log, which --no-access-log leaves out"


def _all(reason: str, *names: str, value: bool = True, instead: str = "") -> dict[str, Other]:
    return {name: Other(reason, value, instead) for name in names}


FLAGS: dict[str, Other] = {
    **_all(_ONE_CARD, "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
    **_all(_ONE_CARD, "--data-parallel-size", "-dp", "--distributed-executor-backend", "--split-mode", "-sm"),
    **_all(_ONE_CARD, "--tensor-split", "-ts", "--main-gpu", "-mg", "-ngl", "--n-gpu-layers", "--gpu-layers"),
    **_all(_ONE_CARD, "--n-cpu-moe", "-ncmoe", "--cpu-offload-gb", "--swap-space", "-dev"),
    **_all(_ONE_CARD, "--enable-expert-parallel", "--cpu-moe", value=False),
    **_all(_FORMAT, "--chat-template", "--chat-template-file", "--chat-template-content-format"),
    **_all(_FORMAT, "--response-role"),
    **_all(_FORMAT, "--jinja", "--no-jinja", value=False),
    **_all(_READ, "--tool-call-parser", "--reasoning-parser", "--reasoning-format"),
    **_all(_READ, "--enable-auto-tool-choice", "--enable-reasoning", value=False),
    **_all(_PER_REQUEST, "--temp", "--temperature", "--top-k", "--top-p", "--min-p", "--seed", "-s"),
    **_all(_PER_REQUEST, "--repeat-penalty", "--override-generation-config", "--logprobs", "--grammar"),
    **_all(_ALWAYS, "--enable-prefix-caching", "--enable-chunked-prefill", value=False),
    **_all(
        _ALWAYS, "--cont-batching", "-cb", "--metrics", "--slots", "--async-scheduling", "--mmap", value=False
    ),
    **_all(_CHECKPOINT, "--dtype", "--quantization", "-q", "--load-format", "--tokenizer"),
    **_all(_CHECKPOINT, "--cache-type-k", "-ctk", "--cache-type-v", "-ctv", "--model-impl"),
    **_all(_CHECKPOINT, "--generation-config"),
    **_all(_CHECKPOINT, "--flash-attn", "-fa", "--attention-backend", "--hf-overrides", "--rope-scaling"),
    **_all(_CHECKPOINT, "--trust-remote-code", "--enforce-eager", "--skip-tokenizer-init", value=False),
    **_all(_MEMORY, "--gpu-memory-utilization", "--cache-ram", "--num-gpu-blocks-override", "--block-size"),
    **_all(_NO_LORA, "--lora", "--lora-modules", "--max-loras"),
    **_all(_NO_LORA, "--enable-lora", value=False),
    **_all("a step takes what fits it", "--max-num-batched-tokens", "-b", "--batch-size", "-ub"),
    **_all("a step takes what fits it", "--ubatch-size"),
    **_all("the variable OMP_NUM_THREADS sets the threads", "-t", "--threads", "-tb", "--threads-batch"),
    **_all("the folder of downloads is the variable HF_HOME", "--download-dir"),
    **_all("set the variable HF_TOKEN", "--hf-token", "-hft"),
    **_all("name the folder of that revision's files as the model", "--revision", "--hf-file", "-hff"),
    **_all(_DRAFTS, "--speculative-config", "-md", "--model-draft", "--draft-max"),
    **_all(
        _LOGGED, "--disable-log-requests", "--no-enable-log-requests", value=False, instead="--no-access-log"
    ),
    **_all(_LOGGED, "--disable-uvicorn-access-log", "--log-disable", value=False, instead="--no-access-log"),
    **_all("off here", "--disable-log-stats", value=False),
    **_all(_LOGGED, "--enable-log-requests", value=False),
    **_all("here --log-level debug", "-v", "--verbose", value=False, instead="--log-level debug"),
    **_all("here --allow-origin ORIGIN, once for each", "--allowed-origins"),
    **_all("there is no such limit: a stream lasts as long as its answer", "--timeout", "-to"),
    **_all("the model stays loaded while the server runs", "--keepalive", "--sleep-idle-seconds"),
    **_all("memory is left to the system", "--mlock", "--no-mmap", value=False),
    **_all("here --effort", "--think", "--reasoning", value=True, instead="--effort"),
    **_all("here --no-reasoning", "--hidethinking", value=False, instead="--no-reasoning"),
    **_all("a request's `format` sets it", "--format", "--json-schema", "-j"),
    **_all("--effort sets the reasoning", "--chat-template-kwargs", "--default-chat-template-kwargs"),
    **_all("only generation is served", "--task", "--runner"),
    **_all("only generation is served", "--embedding", "--embeddings", "--reranking", value=False),
    **_all("the server has no path prefix: let the proxy remove it", "--root-path", "--api-prefix"),
}
"""By the flag's name. Values are left out of the corrected line together with their flags."""
