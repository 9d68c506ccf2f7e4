"""`serve`: its greeting, and the two ways to stop it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.cli.commands import http_server, serve
from gpt_oss_server.cli.commands.http_server import listen
from gpt_oss_server.cli.main import main
from tests.doubles.commands import ANSWER, COMMAND, script
from tests.doubles.server_process import serving


def test_the_greeting_shows_the_model_and_the_address(tmp_path: Path) -> None:
    with serving("--model", script(tmp_path, ANSWER), "--served-model-name", "gpt-oss-20b") as served:
        assert "Model    scripted, replays a script of 1 turn(s)\n" in served.greeting
        assert "Names    scripted, gpt-oss-20b\n" in served.greeting
        assert "Warning" not in served.greeting
        assert "Context  131,072 tokens" in served.greeting
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
        patience = time.monotonic() + 60
        while not answers(f"http://127.0.0.1:{port}/v1/models"):
            assert time.monotonic() < patience, "the server does not answer"
            time.sleep(0.1)
        os.kill(int(pid.read_text()), signal.SIGINT)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_sigterm_while_the_model_loads_ends_it_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler, the first process of a container would ignore it."""
    cleared: list[str] = []

    def load(_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            cleared.append("what was begun")

    monkeypatch.setattr(serve, "load_engine", load)
    monkeypatch.setattr(http_server, "set_up_logging", lambda _: None)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--port", "0"])
    assert ended.value.code == 143
    assert cleared
    assert signal.getsignal(signal.SIGTERM) is before


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_the_embedded_model_gives_its_first_token_within_seconds() -> None:
    began = time.monotonic()
    with serving("--default-max-output-tokens", "4") as served:
        body = {"input": "Hello", "stream": True}
        with httpx.stream("POST", f"{served.api}/responses", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("event: response.in_progress"):
                    break
    # 5 s on a quiet machine; this bound catches only severe slowness on a busy one.
    assert time.monotonic() - began < 60


def long_answer(folder: Path, tokens_per_second: int = 50) -> str:
    text = "<|channel|>final<|message|>" + "word " * 100 + "<|return|>"
    return script(folder, text, tokens_per_second=tokens_per_second)


def read_events(served: Any, stop_after: int, signals: int) -> tuple[list[str], float]:
    """The types of a stream's events; after `stop_after` of them the server gets its signals."""
    types: list[str] = []
    signalled = 0.0
    with httpx.stream(
        "POST", f"{served.api}/responses", json={"input": "x", "stream": True}, timeout=60
    ) as answer:
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


def test_ctrl_c_lets_a_running_stream_finish(tmp_path: Path) -> None:
    with serving("--model", long_answer(tmp_path)) as served:
        types, _ = read_events(served, 10, 1)
        assert types[-1] == "response.completed"
        assert types.count("response.output_text.delta") == 101
        assert served.process.wait(10) == 0


def test_at_the_end_of_the_grace_period_the_stream_fails(tmp_path: Path) -> None:
    with serving("--model", long_answer(tmp_path, 5), "--shutdown-grace", "0") as served:
        types, signalled = read_events(served, 10, 1)
        assert time.monotonic() - signalled < 10  # the rest would take 20 s
        assert types[-1] == "response.failed"
        assert served.process.wait(10) == 0


def test_a_second_ctrl_c_stops_immediately(tmp_path: Path) -> None:
    with serving("--model", long_answer(tmp_path, 5)) as served:
        types, signalled = read_events(served, 10, 2)
        assert types[-1] == "cut"
        assert served.process.wait(10) == 130
        assert time.monotonic() - signalled < 10


def test_listening_beyond_loopback_is_warned_about_in_the_greeting_and_the_log(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    with serving("--model", model, "--host", "0.0.0.0", "--served-model-name", "*") as served:
        assert "WARNING gpt_oss_server.cli.commands.http_server: Other machines can reach" in served.greeting
        assert "  Warning  Other machines can reach this server" in served.greeting
        assert "Names    scripted, any other name\n" in served.greeting


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_which_addresses_only_this_machine_reaches(host: str, local: bool) -> None:
    assert http_server.is_loopback(host) is local


def test_the_embedded_model_is_introduced_as_what_it_is() -> None:
    with serving("--served-model-name", "*") as served:
        assert "Model    tiny, a 16M-parameter demo model" in served.greeting
        assert "Context  131,072 tokens\n" in served.greeting
        assert "*" not in served.greeting
