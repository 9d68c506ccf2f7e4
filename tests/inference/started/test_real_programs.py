"""A real llama-server and a real vLLM that this server starts: killed, hung, refusing; and what it leaves."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
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
from tests.doubles.engines.processor_time import family
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


def engines(server: Served, name: str) -> list[int]:
    """The processes of the program, the first of which is its own."""
    command = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family(server.process.pid)}
    return [pid for pid, words in command.items() if name.encode() in words and b"minder.py" not in words]


def text_of(server: Served, during: Callable[[], object] = lambda: None) -> str:
    """The answer's text, reasoning included; `during` runs when some of it has arrived."""
    pieces: list[str] = []
    with httpx.stream(
        "POST", f"{server.api}/responses", json={**ASKED, "stream": True}, timeout=600
    ) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            pieces += re.findall(r'"delta":"((?:[^"\\]|\\.)*)"', line)
            if len(pieces) == 5:
                during()
            if '"type":"response.failed"' in line:
                raise AssertionError(line)
    return "".join(pieces)


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + NOTICED
    while any(Path(f"/proc/{pid}").exists() and not _is_zombie(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="module")
def server(kind: Kind) -> Iterator[Served]:
    with kind.serving("--engine-idle-timeout", "20") as server:
        yield server


def test_an_answer_survives_the_death_of_the_program(kind: Kind, server: Served) -> None:
    whole = text_of(server)
    first = engines(server, kind.name)
    assert text_of(server, lambda: os.kill(first[0], signal.SIGKILL)) == whole
    assert gone(first)
    assert engines(server, kind.name)[0] != first[0]
    assert any("ended by signal 9." in line for line in server.lines)


def test_an_answer_survives_that_the_program_hangs(kind: Kind, server: Served) -> None:
    whole = text_of(server)
    first = engines(server, kind.name)
    assert text_of(server, lambda: os.kill(first[0], signal.SIGSTOP)) == whole
    assert gone(first)
    assert any("and was ended." in line for line in server.lines)


def refusal(kind: Kind, *flags: str) -> str:
    """What the command prints that does not start a server."""
    done = run("serve", "--port", "0", "--python", "off", *kind.flags, *flags, env=kind.env, timeout=600)
    assert done.returncode == 1
    return done.stderr


def test_a_flag_that_it_does_not_know_is_named(kind: Kind) -> None:
    assert "It has no flag --no-such-flag: correct --engine-args." in refusal(
        kind, "--engine-args=--no-such-flag"
    )


def test_too_little_memory_is_explained(kind: Kind) -> None:
    """Two thousand million tokens; a cache of zero GiB."""
    if kind.name == "vllm":
        kind = replace(kind, env={**kind.env, "VLLM_CPU_KVCACHE_SPACE": "100000"})
        assert "too little memory for it" in refusal(kind)
    else:
        assert "too little memory for it: choose a smaller --context" in refusal(
            kind, "--context", "2000000000"
        )


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
        pids = engines(server, kind.name)
        assert pids
        server.process.kill()
        server.process.wait()
        assert gone(pids)


def test_it_ends_with_the_server(kind: Kind) -> None:
    with kind.serving() as server:
        pids = engines(server, kind.name)
        assert pids
    assert gone(pids)
