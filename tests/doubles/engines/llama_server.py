"""A real llama-server, with a checkpoint's weights."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpt_oss_server.cli.commands.export import harmony_vocabulary
from inference.export.gguf_file import write_gguf
from tests.doubles.engines.processes import await_health
from tests.doubles.server_process import free_port

READY_SECONDS = 120


def found_llama_server() -> str | None:
    """The program of the variable LLAMA_SERVER, else one on the path."""
    return os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


def exported(folder: Path, path: Path) -> Path:
    write_gguf(folder, path, harmony_vocabulary(), name="tiny")
    return path


@contextmanager
def llama_server(
    program: str, model: Path, *flags: str, context: int = 1024, slots: int = 8
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yields its URL and its process. One thread: with two busy ones, a small machine is slower."""
    port = free_port()
    sizes = ["-c", str(context * slots), "-np", str(slots), "-t", "1", "-tb", "1"]
    process = subprocess.Popen(
        [program, "-m", str(model), "--host", "127.0.0.1", "--port", str(port), *sizes, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await_health(url, process, READY_SECONDS)
        yield url, process
    finally:
        process.kill()
        process.wait()
