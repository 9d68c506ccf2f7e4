"""A real vLLM on a CPU, with the embedded model's weights."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.engines.processes import await_health
from tests.doubles.server_process import free_port

READY_SECONDS = 600
# One thread: with two busy ones, a small machine is slower. No model is looked for on the network.
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",  # off by default; comparisons are with what it can do
}


def found_vllm() -> str | None:
    """The program of the variable VLLM, else one on the path."""
    return os.environ.get("VLLM") or shutil.which("vllm")


@contextmanager
def vllm_server(program: str, folder: Path, *flags: str, context: int = 1024) -> Iterator[str]:
    """Yields its URL. With the variable VLLM_URL, that of one which serves such a folder already."""
    if running := os.environ.get("VLLM_URL"):
        yield running
        return
    with vllm_process(program, folder, *flags, context=context) as (url, _):
        yield url


@contextmanager
def vllm_process(
    program: str, folder: Path, *flags: str, context: int = 1024
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    sizes = ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(context)]
    command = [program, "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), *sizes]
    names = ["--served-model-name", "tiny", "--generation-config", "vllm", "--enable-prompt-tokens-details"]
    process = subprocess.Popen(
        [*command, *names, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_VARIABLES, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"},
    )
    try:
        await_health(f"http://127.0.0.1:{port}", process, READY_SECONDS)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(60)
