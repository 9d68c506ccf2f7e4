"""Real engines of other programs with the embedded model's weights, as a server's `--model` names them."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpt_oss_server.cli.commands.export import harmony_vocabulary
from inference import tiny
from inference.export.gguf_file import write_gguf
from tests.doubles.engines.hf_folder import write_folder
from tests.doubles.server_process import answers, await_ready, free_port

KINDS = ("llama", "vllm")
# One thread: with two busy ones, a small machine is slower. No model is looked for on the network.
_OF_VLLM = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",  # off by default; comparisons are with what it can do
}


@contextmanager
def live_engine(kind: str, scratch: Path, *flags: str, context: int = 1024, slots: int = 8) -> Iterator[str]:
    """Yields `llama:URL`, `vllm:URL`, or "tiny" as it is. Skips where the program is missing."""
    if kind == "tiny":
        yield kind
        return
    if kind == "llama":
        if (program := found_llama_server()) is None:
            pytest.skip("no llama-server: set LLAMA_SERVER to its path")
        model = exported(tiny.checkpoint(), scratch / "tiny.gguf")
        with llama_server(program, model, *flags, context=context, slots=slots) as (url, _):
            yield f"llama:{url}"
        return
    if (program := found_vllm()) is None:
        pytest.skip("no vLLM: set VLLM to the path of its program")
    with vllm_server(program, write_folder(tiny.checkpoint(), scratch), *flags, context=context) as url:
        yield f"vllm:{url}"


def found_llama_server() -> str | None:
    """The program of the variable LLAMA_SERVER, else one on the path."""
    return os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


def found_vllm() -> str | None:
    """The program of the variable VLLM, else one on the path."""
    return os.environ.get("VLLM") or shutil.which("vllm")


def exported(folder: Path, path: Path) -> Path:
    write_gguf(folder, path, harmony_vocabulary(), name="tiny")
    return path


Running = tuple[str, subprocess.Popen[bytes]]  # its URL and its process


@contextmanager
def llama_server(
    program: str, model: Path, *flags: str, context: int = 1024, slots: int = 8
) -> Iterator[Running]:
    sizes = ["-c", str(context * slots), "-np", str(slots), "-t", "1", "-tb", "1"]
    with _running([program, "-m", str(model), *sizes, *flags], dict(os.environ), 120) as running:
        yield running


@contextmanager
def vllm_server(program: str, folder: Path, *flags: str, context: int = 1024) -> Iterator[str]:
    """Yields its URL. With the variable VLLM_URL, that of one which serves such a folder already."""
    if running := os.environ.get("VLLM_URL"):
        yield running
        return
    with vllm_process(program, folder, *flags, context=context) as (url, _):
        yield url


@contextmanager
def vllm_process(program: str, folder: Path, *flags: str, context: int = 1024) -> Iterator[Running]:
    sizes = ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(context)]
    names = ["--served-model-name", "tiny", "--generation-config", "vllm", "--enable-prompt-tokens-details"]
    variables = {**os.environ, **_OF_VLLM, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
    with _running([program, "serve", str(folder), *sizes, *names, *flags], variables, 600) as running:
        yield running


@contextmanager
def _running(command: Sequence[str], env: dict[str, str], seconds: float) -> Iterator[Running]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    try:
        await_ready(process, lambda: answers(f"{url}/health"), seconds=seconds)
        yield url, process
    finally:
        process.terminate()
        process.wait(60)
