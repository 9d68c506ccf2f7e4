"""`serve`: its greeting, and the two ways to stop it."""

import json
import os
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.cli.server.http_server import listen
from gpt_oss_server.observe.health.drain import ExitCode
from tests.doubles.commands import ANSWER, COMMAND, script
from tests.doubles.processes.forked import Command
from tests.doubles.server_process import serving
from tools.addresses import is_of_this_machine


def test_the_greeting_shows_the_model_and_the_address(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    with serving("--model", model, "--served-model-name", "gpt-oss-20b", fresh=True) as served:
        assert "Model    scripted, replays a script of 1 turn(s)\n" in served.greeting
        assert "Names    scripted, gpt-oss-20b\n" in served.greeting
        assert "Warning" not in served.greeting
        assert "Context  131,072 tokens" in served.greeting
        assert f"Browser  {served.url}   (the playground)\n" in served.greeting
        assert f"curl {served.api}/responses" in served.greeting
        with urllib.request.urlopen(f"{served.api}/models") as answer:
            assert "server" not in {name.lower() for name in answer.headers}
            assert [model["id"] for model in json.load(answer)["data"]] == ["scripted", "gpt-oss-20b"]


@pytest.mark.parametrize("reader", [">&-", "| true"])
def test_it_serves_when_nothing_reads_its_output(tmp_path: Path, reader: str) -> None:
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    own = shlex.join([*COMMAND, "serve", "--model", script(tmp_path, ANSWER), "--port", str(port)])
    pid = tmp_path / "pid"
    words = ["bash", "-c", f"(echo $BASHPID > {pid}; exec {own}) {reader}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        wait_for(f"http://127.0.0.1:{port}/v1/models")
        os.kill(int(pid.read_text()), signal.SIGINT)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@contextmanager
def loading(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, ThreadPoolExecutor]]:
    """A server whose model is a pipe, which it reads until something is written there; with a thread."""
    os.mkfifo(folder / "script.json")
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    words = ["serve", "--model", f"scripted:{folder / 'script.json'}", "--port", str(port)]
    with (
        Command[str](words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ThreadPoolExecutor(1) as others,
    ):
        try:
            wait_for(f"http://127.0.0.1:{port}/health")
            yield process, f"http://127.0.0.1:{port}", others
        finally:
            process.kill()


def wait_for(url: str) -> None:
    patience = time.monotonic() + 60
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(url).status_code == 200:
                return
        assert time.monotonic() < patience, "the server does not answer"
        time.sleep(0.1)


def test_health_answers_while_the_model_loads_and_requests_wait_for_it(tmp_path: Path) -> None:
    with loading(tmp_path) as (process, url, others):
        assert httpx.get(f"{url}/health").json()["ready"] is False
        early = httpx.get(f"{url}/ready")
        assert (early.status_code, early.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert "loading" in early.json()["error"]["message"]
        assert early.headers["retry-after"]
        waiting = others.submit(httpx.post, f"{url}/v1/responses", json={"input": "x"}, timeout=60)
        time.sleep(0.5)
        assert not waiting.done()
        (tmp_path / "script.json").write_text(json.dumps({"turns": [ANSWER]}))
        assert waiting.result().json()["status"] == "completed"
        assert httpx.get(f"{url}/ready").json() == {"status": "ready", "model": "scripted"}
        assert httpx.get(f"{url}/health").json()["ready"] is True
        assert process.stdout is not None
        assert "Model    scripted" in "".join(process.stdout.readline() for _ in range(3))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads_ends_it_immediately(tmp_path: Path, sent: signal.Signals) -> None:
    with loading(tmp_path) as (process, url, others):
        waiting = others.submit(httpx.post, f"{url}/v1/responses", json={"input": "x"}, timeout=60)
        time.sleep(0.5)
        process.send_signal(sent)
        assert process.wait(20) in (-sent, 128 + sent)
        assert waiting.result().status_code == 503
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_model_that_does_not_load_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    with loading(tmp_path) as (process, _, _):
        (tmp_path / "script.json").write_text("no script")
        assert process.wait(20) == 1
        assert process.stderr is not None
        output = process.stderr.read()
        assert ("script.json" in output, "Traceback" in output) == (True, False)


def test_the_embedded_model_is_introduced_and_gives_its_first_token_within_seconds() -> None:
    began = time.monotonic()
    flags = ("--default-max-output-tokens", "4", "--served-model-name", "*")
    with serving(*flags, fresh=True) as served:
        assert "Model    tiny, a 16M-parameter demo model" in served.greeting
        assert "Context  131,072 tokens\n" in served.greeting
        assert "*" not in served.greeting
        body = {"input": "Hello", "stream": True}
        with httpx.stream("POST", f"{served.api}/responses", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("event: response.in_progress"):
                    break
    # 5 s on a quiet machine; this bound catches only severe slowness on a busy one.
    assert time.monotonic() - began < 60


def long_answer(folder: Path, tokens_per_second: int) -> str:
    text = "<|channel|>final<|message|>" + "word " * 100 + "<|return|>"
    return script(folder, text, tokens_per_second=tokens_per_second)


def read_events(served: Any, stop_after: int, signals: int) -> tuple[list[str], float]:
    """The types of a stream's events; after `stop_after` of them the server gets its signals."""
    types: list[str] = []
    signalled = 0.0
    body = {"input": "x", "stream": True}
    with httpx.stream("POST", f"{served.api}/responses", json=body, timeout=60) as answer:
        try:
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    types.append(line.removeprefix("event: "))
                if len(types) == stop_after and not signalled:
                    signalled = time.monotonic()
                    for _ in range(signals):
                        served.process.send_signal(signal.SIGINT)
                        time.sleep(0.3)
        except httpx.RemoteProtocolError:
            types.append("cut")
    return types, signalled


ENDS = {
    "a stream may finish": (50, (), 1, "response.completed", 0),
    "after the grace period it fails": (5, ("--shutdown-grace", "0"), 1, "response.failed", ExitCode.LATE),
    "a second one stops immediately": (5, (), 2, "cut", 130),
}


@pytest.mark.parametrize("end", ENDS)
def test_ctrl_c(end: str, tmp_path: Path) -> None:
    speed, flags, signals, last, code = ENDS[end]
    with serving("--model", long_answer(tmp_path, speed), *flags) as served:
        types, signalled = read_events(served, 10, signals)
        assert types[-1] == last
        if code == 0:
            assert types.count("response.output_text.delta") == 101
        assert served.process.wait(10) == code
        assert time.monotonic() - signalled < 10  # without an end, the slow ones would take 20 s


def test_listening_beyond_loopback_is_warned_about_in_the_greeting_and_the_log(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    with serving("--model", model, "--host", "0.0.0.0", "--served-model-name", "*") as served:
        assert "WARNING gpt_oss_server.cli.server.http_server: Other machines can reach" in served.greeting
        assert "  Warning  Other machines can reach this server" in served.greeting
        assert served.greeting.count("run python and the other enabled tools") == 1, "at length once"
        assert "Names    scripted, any other name\n" in served.greeting


def test_which_addresses_only_this_machine_reaches() -> None:
    assert all(map(is_of_this_machine, ("127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_of_this_machine, ("0.0.0.0", "::")))


def test_without_any_sandbox_and_with_a_tool_server_that_is_late_everything_else_is_served(
    tmp_path: Path,
) -> None:
    flags = ("--python", "auto", "--mcp", "notes=http://127.0.0.1:9/mcp")
    with serving("--model", script(tmp_path, ANSWER), *flags, env={"PATH": str(tmp_path)}) as served:
        assert "Model    scripted" in served.greeting
        assert "--mcp notes: " in served.greeting
        assert "Requests that need it will try again." in served.greeting
