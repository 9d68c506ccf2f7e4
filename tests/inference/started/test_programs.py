"""Programs that the server starts: kept running, ended with it, and what errors say when they do not start.

The program is a double's; `make engines` does the same with real ones (test_started_servers).
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.cli.line.flags import whole_switches
from inference.engine import CheckpointError, EngineFailed, InferenceError, ModelNotFound
from inference.options import EngineOptions
from inference.remote.engine import RemoteEngine
from inference.started import choice, machine, process
from inference.started.choice import chosen_program
from inference.started.machine import Machine, llama_sizes, parallel_cards
from inference.started.programs import LLAMA, SGLANG, VLLM, command
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import model_tokens
from tests.doubles.engines.processor_time import is_gone
from tests.doubles.engines.program import write_program
from tests.doubles.waiting import until, until_found

pytestmark = pytest.mark.anyio
Load = Callable[..., Any]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "some.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture
async def load(tmp_path: Path, model: str) -> AsyncIterator[Load]:
    engines: list[RemoteEngine] = []
    program = write_program(tmp_path)

    async def loaded(args: str = "", **options: Any) -> RemoteEngine:
        args = f"--pids {tmp_path / 'pids'} {args}"
        chosen = EngineOptions(engine_program=program, engine_args=args, **options)
        engine = await asyncio.to_thread(inference.load, model, options=chosen, progress=False)
        assert isinstance(engine, RemoteEngine)
        engines.append(engine)
        return engine

    yield loaded
    for engine in engines:
        await engine.close()


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    """Of the program and of its child."""
    return lambda: [int(word) for word in (tmp_path / "pids").read_text().split()]


async def all_gone(pids: list[int]) -> None:
    await until(lambda: all(map(is_gone, pids)))


async def disturbed(engine: RemoteEngine, disturb: Callable[[], object]) -> tuple[int, ...]:
    """The tokens of a generation that is disturbed once it has sampled three."""
    tokens: list[int] = []
    async for step in engine.generate(PROMPT, GREEDY):
        before = len(tokens)
        tokens += step.tokens
        if before < 3 <= len(tokens):
            disturb()
    return tuple(tokens)


async def test_it_serves_under_the_name_of_the_file_and_ends_with_its_engine(load: Load, pids: Any) -> None:
    engine = await load()
    assert engine.info.description == "llama-server, which this server has started"
    assert (await generated(engine)).tokens == model_tokens(40)
    await engine.check()
    await engine.close()
    await all_gone(pids())


async def test_a_generation_survives_the_death_of_the_program(
    load: Load, pids: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await load("--pace 0.005")
    first = pids()
    with caplog.at_level(logging.WARNING):
        assert await disturbed(engine, lambda: os.kill(first[0], signal.SIGKILL)) == model_tokens(40)
    assert "llama-server ended by signal 9." in caplog.text
    assert "serves again" in caplog.text
    await all_gone(first)
    assert (await generated(engine)).tokens == model_tokens(40)


async def test_the_death_of_its_minder_is_the_programs(load: Load, pids: Any) -> None:
    engine = await load("--pace 0.005")
    first = pids()
    minder = int((Path("/proc") / str(first[0]) / "stat").read_text().rpartition(")")[2].split()[1])
    assert await disturbed(engine, lambda: os.kill(minder, signal.SIGKILL)) == model_tokens(40)
    await all_gone(first[:1])
    os.kill(first[1], signal.SIGKILL)  # a child of the program, which nothing is left to end


async def test_a_program_that_hangs_is_ended_and_started_again(
    load: Load, pids: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_HEALTH_SECONDS", 0.1)
    engine = await load("--pace 0.005", engine_idle_timeout=3.0)
    first = pids()
    with caplog.at_level(logging.WARNING):
        assert await disturbed(engine, lambda: os.kill(first[0], signal.SIGSTOP)) == model_tokens(40)
    assert "did not answer for 3 s, and was ended." in caplog.text
    await all_gone(first)


async def test_requests_wait_for_a_start_but_not_for_one_that_fails_again_and_again(
    load: Load, pids: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_FIRST_PAUSE", 0.01)
    broken = tmp_path / "broken"
    engine = await load(f"--ends-if {broken} --prints 'the|disk|is|full'")
    broken.touch()
    os.kill(pids()[0], signal.SIGKILL)
    with pytest.raises(
        EngineFailed, match=r"ended with code 1 before it could serve\. Its last lines:\n  the\n"
    ):
        await generated(engine)
    with pytest.raises(EngineFailed, match="before it could serve"):
        await engine.check()
    broken.unlink()

    async def problem() -> EngineFailed | None:
        await asyncio.sleep(0.02)
        try:
            await engine.check()
        except EngineFailed as error:
            return error
        return None

    await until_found(problem, lambda found: found is None)
    assert (await generated(engine)).tokens == model_tokens(40)


ENDINGS = [
    ("error: invalid argument: --wrong", "no flag --wrong: correct --engine-args"),
    ("error: invalid argument: --swa-full", r"no flag --swa-full: it is too old; update it\."),
    ("unknown model architecture: 'gpt-oss'", "too old for gpt-oss; update it"),
    ("failed to allocate buffer", "too little memory for it: choose a smaller --context"),
    ("one|two|three|four|five|six|seven", r"code 1 before it could serve\. Its last lines:\n  two\n"),
]
FAILURES = [(f'--ends --prints "{printed}" --wrong 1', sentence) for printed, sentence in ENDINGS]
FAILURES += [("--hangs", "llama-server printed nothing for 3 s")]
FAILURES += [("'", "--engine-args .* cannot be read: No closing quotation")]


@pytest.mark.parametrize(("args", "sentence"), FAILURES)
async def test_a_program_that_does_not_start_is_explained(
    load: Load, pids: Any, args: str, sentence: str
) -> None:
    with pytest.raises(InferenceError, match=sentence):
        await load(args, engine_idle_timeout=3.0 if args == "--hangs" else 600.0)
    if args != "'":
        await all_gone(pids())


async def test_its_output_goes_to_a_file(load: Load, tmp_path: Path) -> None:
    await load("--prints 'one|two'", engine_log=str(log := tmp_path / "log"))
    await until(lambda: log.read_text().startswith("one\ntwo\n"))  # a thread writes it
    with pytest.raises(CheckpointError, match="--engine-log /not/here/log cannot be written"):
        await load(engine_log="/not/here/log")


SERVES = """
import sys, time, inference
from inference.options import EngineOptions
model, program, args = sys.argv[1:]
engine = inference.load(model, options=EngineOptions(engine_program=program, engine_args=args))
print("loaded", flush=True)
time.sleep(1000)
"""


def spawned(words: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", SERVES, *words], stdout=subprocess.PIPE, text=True)


async def test_nothing_is_left_when_the_server_is_killed(model: str, tmp_path: Path, pids: Any) -> None:
    words = [model, write_program(tmp_path), f"--pids {tmp_path / 'pids'}"]
    server = await asyncio.to_thread(spawned, words)
    with server.stdout:
        assert await asyncio.to_thread(server.stdout.readline) == "loaded\n"
    server.kill()
    server.wait()
    await all_gone(pids())


# --- which program, and how it is called ------------------------------------------------------------

CARD = ("NVIDIA H200", 140 << 30)


def folder_of(tmp_path: Path, size: float) -> str:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(int(size))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("size", "cards", "installed", "options", "expected", "is_advised"),
    [
        (14e9, (), True, {}, LLAMA, True),
        (14e9, (), False, {}, None, True),
        (14e9, (CARD,), True, {}, None, False),
        (200e9, (CARD,), True, {}, LLAMA, True),
        (14e9, (CARD,), True, {"device": "cpu"}, LLAMA, True),
        (1e9, (), True, {}, None, False),
        (14e9, (), True, {"weights": "fp8"}, None, False),
        (14e9, (), True, {"engine": "built-in"}, None, False),
        (14e9, (CARD,), True, {"engine": "vllm"}, VLLM, False),
    ],
)
def test_auto_chooses_by_the_card_and_by_what_is_installed(
    size: float,
    cards: Any,
    installed: bool,
    options: Any,
    expected: Any,
    is_advised: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin").mkdir()
    if installed:
        write_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(machine, "cards", lambda: cards)
    model, chosen = folder_of(tmp_path, size), EngineOptions(**options)
    assert chosen_program(model, chosen) is expected
    advice = choice.slow_here(model, chosen)
    assert (advice is not None) == is_advised
    assert not advice or "releases), or name the program with --engine-program" in advice


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "llama", "kv_memory": 1}, "--kv-memory is for the built-in.* runs on llama-server"),
        ({"engine": "built-in", "engine_args": "-x"}, "--engine-args is for a program.*Add --engine"),
        ({"engine": "vllm", "engine_program": "/not/here"}, "--engine-program /not/here is no program"),
        ({"engine": "vllm"}, r"vLLM is not on the PATH.*Install it \(pip install vllm\)"),
        ({"engine": "llama", "engine_program": "true"}, "Make one: gpt-oss-server export gguf"),
    ],
)
def test_options_that_cannot_have_an_effect_are_refused(
    options: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/bin")
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises((CheckpointError, ModelNotFound), match=sentence):
        inference.load(folder_of(tmp_path, 1e6), options=EngineOptions(**options))


def test_the_ways_to_install_are_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("brew", "conda"):
        (tmp_path / tool).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ways = "brew install llama.cpp, or conda install -c conda-forge llama.cpp"
    assert LLAMA.how_to_install().startswith(f"Install it ({ways}), or name")


GB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "cards", "size", "options", "expected"),
    [
        (23 * GB, (), 12 * GB, {}, (4, 29_696, True)),
        (16 * GB, (), 12 * GB, {}, (4, 21_504, False)),
        (8 * GB, (), 12 * GB, {}, (4, 8192, False)),
        (64 * GB, (CARD,), 12 * GB, {}, (4, 131_072, True)),
        (64 * GB, (CARD,), 60 * GB, {"context": 4096, "max_concurrent": 2}, (2, 4096, True)),
        (64 * GB, (), GB // 4, {}, (4, 10_240, False)),
    ],
)
def test_contexts_and_slots_fit_the_memory(
    memory: int, cards: Any, size: int, options: Any, expected: Any
) -> None:
    assert llama_sizes(EngineOptions(**options), Machine(4, memory, cards), size) == expected


def test_the_commands(tmp_path: Path, model: str) -> None:
    here = Machine(6, 64 * GB, (CARD,) * 3)
    given = EngineOptions(engine_program="true", engine_args="--a 'b c'", context=1000, max_concurrent=2)
    path, *words = command(LLAMA, model, given, here, GB)
    assert path.endswith("/true")
    assert words[:8] == ["-m", model, "--alias", "some", "-np", "2", "-c", "2002"]
    assert words[8:] == ["-t", "6", "-tb", "6", "--swa-full", "--a", "b c"]
    repo = command(LLAMA, "ggml-org/gpt-oss-20b-GGUF", given, here, GB)
    assert repo[1:5] == ["-hf", "ggml-org/gpt-oss-20b-GGUF", "--alias", "gpt-oss-20b"]
    vllm = " ".join(command(VLLM, "openai/gpt-oss-20b", given, here, GB))
    assert "serve openai/gpt-oss-20b" in vllm
    assert "--max-model-len 1000 --max-num-seqs 2 --tensor-parallel-size 2 --a b c" in vllm
    sglang = " ".join(command(SGLANG, "x/y", EngineOptions(engine_program="true"), Machine(1, GB), GB))
    assert sglang.endswith("serve --model-path x/y --incremental-streaming-output")
    assert parallel_cards(Machine(1, GB, (CARD,) * 9)) == 8


def test_the_command_line_takes_a_single_flag_for_the_program() -> None:
    words = whole_switches(["serve", "x.gguf", "--engine-args", "--no-mmap", "--port", "1"])
    assert words == ["serve", "x.gguf", "--engine-args=--no-mmap", "--port", "1"]
