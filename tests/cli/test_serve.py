"""Commands that serve: `serve`, its greeting and the ways to stop it, and `mcp`, as its client sees it."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import httpx
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ImageContent, TextContent

from gpt_oss_server.cli.main import main
from gpt_oss_server.cli.server.http_server import listen
from gpt_oss_server.cli.terminal.console import CommandLineError
from tests.doubles.commands import ANSWER, COMMAND, script, terminal
from tests.doubles.processes.forked import Command
from tests.doubles.server_process import answers, serving
from tests.doubles.waiting import wait_until
from tests.tools.python.conftest import bubblewrap
from tools.addresses import is_of_this_machine


def test_a_package_that_a_setting_needs_is_checked_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setattr("gpt_oss_server.cli.server.start.Start", None)
    assert main(["serve", "--store", "postgres://me@127.0.0.1/db"]) == 1
    assert "The package psycopg is missing. Install it: " in capsys.readouterr().err


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
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/v1/models"))
        os.kill(int(pid.read_text()), signal.SIGINT)
        assert "Traceback" not in process.communicate()[1]


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
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/health"))
            yield process, f"http://127.0.0.1:{port}", others
        finally:
            process.kill()


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
        assert "Traceback" not in process.communicate(timeout=20)[1]
        assert process.returncode in (-sent, 128 + sent)
        assert waiting.result().status_code == 503


def test_a_model_that_does_not_load_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    with loading(tmp_path) as (process, _, _):
        (tmp_path / "script.json").write_text("no script")
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, "script.json" in errors, "Traceback" in errors) == (1, True, False)


def test_after_ctrl_c_a_stream_may_finish(tmp_path: Path) -> None:
    types: list[str] = []
    model = script(tmp_path, f"<|channel|>final<|message|>{'word ' * 100}<|return|>", tokens_per_second=50)
    with serving("--model", model) as served:
        body = {"input": "x", "stream": True}
        with httpx.stream("POST", f"{served.api}/responses", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    types.append(line.removeprefix("event: "))
                    if len(types) == 10:
                        served.process.send_signal(signal.SIGINT)
        assert types[-1] == "response.completed"
        assert types.count("response.output_text.delta") == 101
        assert served.process.wait(10) == 0


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


PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    (tmp_path / "fjord.md").write_text("# The fjord\n\nThe fjord is deep.\n")
    return tmp_path


@pytest.fixture(params=["127.0.0.1", "::1"])
def served(shelf: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    host: str = request.param
    try:
        with listen(host, 0) as free:
            port = str(free.getsockname()[1])
    except CommandLineError:
        pytest.skip(f"{host} is not available")
    words = ["mcp", "browser", "--browser", f"local:{shelf}", "--http", "--host", host, "--port", port]
    process = Command[str](words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = f"http://[{host}]:{port}/mcp" if ":" in host else f"http://{host}:{port}/mcp"
    assert url in process.stderr.readline()
    yield url
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    assert process.wait(15) in (0, 130, -signal.SIGINT)
    process.stderr.close()


@pytest.fixture
def quiet() -> Iterator[TextIO]:
    with Path(os.devnull).open("w") as nowhere:
        yield nowhere


def text_of(result: CallToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, TextContent))


def on_stdio(quiet: TextIO, *words: str) -> Client:
    command = StdioServerParameters(command=sys.executable, args=["-m", "gpt_oss_server", "mcp", *words])
    return Client(stdio_client(command, errlog=quiet))


async def test_the_browser_on_stdio(shelf: Path, quiet: TextIO) -> None:
    async with on_stdio(quiet, "browser", "--browser", f"local:{shelf}") as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == {"search", "open", "find"}
        results = await client.call_tool("search", {"query": "fjord"})
        page = await client.call_tool("open", {"id": 0})
    assert "fjord" in text_of(results)
    assert "The fjord is deep." in text_of(page)


async def test_python_on_stdio_keeps_state_and_returns_images(quiet: TextIO) -> None:
    await asyncio.to_thread(bubblewrap)  # skips where there is none
    async with on_stdio(quiet, "python", "--python", "bubblewrap") as client:
        await client.call_tool("python", {"code": "x = 6"})
        answer = await client.call_tool("python", {"code": "x * 7"})
        plot = await client.call_tool("python", {"code": PLOT})
    assert "42" in text_of(answer)
    assert any(isinstance(part, ImageContent) for part in plot.content)


async def test_the_browser_over_http(served: str) -> None:
    async with Client(streamable_http_client(served)) as client:
        assert "fjord" in text_of(await client.call_tool("search", {"query": "fjord"}))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_its_input_is_open(shelf: Path, number: signal.Signals) -> None:
    client = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    params = {"protocolVersion": "2025-06-18", **client}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    words = ["mcp", "browser", "--browser", f"local:{shelf}"]
    with Command[str](words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(hello) + "\n")
        process.stdin.flush()
        assert "serverInfo" in process.stdout.readline()
        process.send_signal(number)
        try:
            assert process.wait(15) == 128 + number
        finally:
            process.kill()


def test_a_user_who_starts_it_in_a_terminal_reads_who_does_that_and_how_it_ends() -> None:
    with terminal("python", "--python", "unsafe-local", command="mcp") as screen:
        screen.shows(r"An MCP client starts this command; Ctrl-D ends it\.")
        screen.quit()
