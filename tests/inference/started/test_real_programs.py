"""A real llama-server and a real vLLM that this server starts: killed, hung, refusing; and what it leaves."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

import inference
from inference import tiny
from inference.engine import EngineFailed
from inference.options import EngineOptions
from inference.started import process
from tests.doubles.commands import run
from tests.doubles.engines.live import OF_VLLM, exported, found_llama_server, found_vllm, write_folder
from tests.doubles.engines.processor_time import is_gone, of_program
from tests.doubles.server_process import Served, serving

pytestmark = pytest.mark.engines
LLAMA, VLLM = found_llama_server(), found_vllm()
ASKED = {"input": "Tell me a story about the sea.", "temperature": 0, "max_output_tokens": 120}
NOTICED = 60.0  # seconds


@dataclass(frozen=True)
class Kind:
    flags: tuple[str, ...]
    name: str  # of its process
    env: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return "vLLM" if self.name == "vllm" else self.name

    def serving(self, *flags: str) -> AbstractContextManager[Served]:
        return serving(*self.flags, *flags, env=self.env, fresh=True)


@pytest.fixture(scope="module", params=["llama", "vllm"])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    folder = tmp_path_factory.mktemp("model")
    if request.param == "llama":
        if LLAMA is None:
            pytest.skip("no llama-server: set LLAMA_SERVER to its path")
        model = exported(tiny.checkpoint(), folder / "tiny.gguf")
        return Kind((str(model), "--engine-program", LLAMA, "--engine-args", "-t 1 -tb 1"), "llama-server")
    if VLLM is None:
        pytest.skip("no vLLM: set VLLM to the path of its program")
    write_folder(tiny.checkpoint(), folder)
    words = (str(folder), "--engine", "vllm", "--engine-program", VLLM, "--context", "1024")
    env = {**OF_VLLM, "OMP_NUM_THREADS": "1", "PATH": f"{Path(VLLM).parent}:{os.environ['PATH']}"}
    return Kind((*words, "--engine-args", "--dtype float32 --enforce-eager"), "vllm", env)


def text_of(server: Served, during: Callable[[], object] = lambda: None) -> str:
    """The answer's text, reasoning included; `during` runs when some of it has arrived."""
    pieces: list[str] = []
    waiting = [during]
    with httpx.stream(
        "POST", f"{server.api}/responses", json={**ASKED, "stream": True}, timeout=600
    ) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            pieces += re.findall(r'"delta":"((?:[^"\\]|\\.)*)"', line)
            if len(pieces) >= 5 and waiting:
                waiting.pop()()
            if '"type":"response.failed"' in line:
                raise AssertionError(line)
    return "".join(pieces)


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + NOTICED
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def gone(pids: list[int]) -> bool:
    return soon(lambda: all(map(is_gone, pids)))


def says(server: Served, words: str) -> bool:
    return soon(lambda: any(words in line for line in server.lines))


@pytest.fixture(scope="module")
def server(kind: Kind) -> Iterator[Served]:
    silence = "60" if kind.name == "vllm" else "20"  # vLLM prints nothing while it imports
    with kind.serving("--engine-idle-timeout", silence) as server:
        yield server


def test_an_answer_survives_the_death_of_the_program(kind: Kind, server: Served) -> None:
    whole = text_of(server)
    first = of_program(server.process.pid, kind.name)
    assert text_of(server, lambda: os.kill(first[0], signal.SIGKILL)) == whole
    assert gone(first)
    assert of_program(server.process.pid, kind.name)[0] != first[0]
    assert says(server, "ended by signal 9.")


def test_an_answer_survives_that_the_program_hangs(kind: Kind, server: Served) -> None:
    whole = text_of(server)
    first = of_program(server.process.pid, kind.name)
    assert text_of(server, lambda: os.kill(first[0], signal.SIGSTOP)) == whole
    assert gone(first)
    assert says(server, "and was ended.")


def refusal(kind: Kind, *flags: str) -> str:
    """What the command prints that does not start a server."""
    done = run("serve", "--port", "0", "--python", "off", *kind.flags, *flags, env=kind.env, timeout=600)
    assert done.returncode == 1
    return done.stderr


def test_a_flag_that_it_does_not_know_is_named(kind: Kind) -> None:
    assert "It has no flag --no-such-flag: correct --engine-args." in refusal(
        kind, "--engine-args=--no-such-flag"
    )


def test_too_little_memory_is_explained(kind: Kind, tmp_path: Path) -> None:
    if kind.name == "vllm":
        pytest.skip("it takes minutes to find out")
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -v 900000\nexec {LLAMA} "$@"\n')
    limited.chmod(0o755)
    why = refusal(kind, "--context", "100000", "--engine-program", str(limited))
    assert "too little memory for it: choose a smaller --context" in why


def test_a_port_that_is_taken_is_explained(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind.name == "vllm":
        pytest.skip("it takes minutes to find out")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(process, "_free_port", lambda: taken.getsockname()[1])
        options = EngineOptions(engine_program=LLAMA)
        with pytest.raises(EngineFailed, match=r"before it could serve(?s:.)*couldn't bind"):
            inference.load(kind.flags[0], options=options, progress=False)


def test_nothing_is_left_when_the_server_is_killed(kind: Kind) -> None:
    with kind.serving() as server:
        pids = of_program(server.process.pid, kind.name)
        assert pids
        server.process.kill()
        server.process.wait()
        assert gone(pids)


def test_it_ends_with_the_server(kind: Kind) -> None:
    with kind.serving() as server:
        pids = of_program(server.process.pid, kind.name)
        assert pids
    assert gone(pids)


def test_its_version_is_in_the_matrix_of_the_documentation(kind: Kind) -> None:
    if kind.name == "vllm":
        code = "import importlib.metadata; print(importlib.metadata.version('vllm'))"
        command = [str(Path(str(VLLM)).parent / "python"), "-c", code]
    else:
        command = [str(LLAMA), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"build (\d+)|version: (\d+) |^(\d\S+)$", done.stdout + done.stderr, re.MULTILINE)
    assert found is not None, done
    if found[1] == "0":
        pytest.skip("this build does not state its number")
    version = found[3] or f"b{found[1] or found[2]}"
    page = (Path(__file__).parents[3] / "docs" / "engines.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {kind.title} |"))
    assert version in re.split(r"[|, ]+", row)
