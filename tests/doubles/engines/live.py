"""Real engines of other programs with the embedded model's weights, as a server's `--model` names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inference import tiny
from tests.doubles.engines.hf_folder import write_folder
from tests.doubles.engines.llama_server import exported, found_llama_server, llama_server
from tests.doubles.engines.vllm_server import found_vllm, vllm_server

KINDS = ("llama", "vllm")


@contextmanager
def live_engine(kind: str, scratch: Path, *flags: str, context: int = 1024, slots: int = 8) -> Iterator[str]:
    """Yields `llama:URL` or `vllm:URL`. Skips where the program is missing."""
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
