"""The log of a whole process: in JSON mode every line is an object, whoever wrote it."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.doubles.commands import ANSWER, COMMAND, run, script
from tests.doubles.server_process import ServerProcess, serving


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_no_level_writes_keys_and_prompts_of_a_websocket(tmp_path: Path) -> None:
    key = "sesame-of-ali"
    with serving("--model", script(tmp_path, ANSWER), "--log-level", "debug", "--api-key", key) as served:
        headers = {"Authorization": f"Bearer {key}"}
        with connect(
            f"{served.api.replace('http', 'ws', 1)}/responses", additional_headers=headers
        ) as socket:
            socket.send('{"type": "response.create", "input": "a secret of mine"}')
            while "response.completed" not in str(socket.recv(timeout=20)):
                pass
    written = "".join(served.lines)
    assert "response.create" in written
    assert "sesame" not in written
    assert "secret" not in written


async def test_in_json_mode_every_line_is_an_object_from_the_start_to_the_end(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    flags = ("--model", model, "--log-format", "json", "--log-level", "debug", "--drain-delay", "0.2")
    server = ServerProcess(flags, tmp_path / "log")
    server.start()
    try:
        await server.ready()
        async with httpx.AsyncClient(base_url=server.url) as client:
            await client.post("/responses", json={"input": "Hi", "strange_field": 1})
            await client.get("/nothing")
        server.send(signal.SIGTERM)
        assert server.process is not None
        assert server.process.wait(60) == 0
    finally:
        server.kill()
    written = parsed((tmp_path / "log").read_text())
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in written))
    events = {line.get("event") for line in written}
    assert {"server ready", "request arrived", "request ended"} <= events
    assert (written[-1]["event"], written[-1]["exit_code"]) == ("server stopped", 0)
    assert any(line["logger"].startswith("uvicorn") for line in written)
    assert any("strange_field" in line["message"] for line in written)
    assert any("Not ready any more" in line["message"] for line in written)


def test_a_start_that_fails_is_an_object_too(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text("no script")
    broken = f"scripted:{tmp_path / 'script.json'}"
    done = run("serve", "--model", broken, "--port", "0", "--log-format", "json")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = parsed(done.stderr)
    assert (line["level"], "script.json" in line["message"]) == ("critical", True)


def test_an_exception_that_nothing_catches_is_an_object_too() -> None:
    code = (
        "import threading, warnings\n"
        "from gpt_oss_server.observe.logs.setup import set_up_logging\n"
        "from gpt_oss_server.settings import Settings\n"
        "set_up_logging(Settings(log_format='json'))\n"
        "warnings.warn('careful')\n"
        "thread = threading.Thread(target=lambda: 1 / 0, name='worker')\n"
        "thread.start(); thread.join()\n"
        "raise KeyError('x')\n"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, timeout=60)
    warning, thread, end = parsed(done.stderr)
    assert "careful" in warning["message"]
    assert thread["message"] == "The thread worker ended with ZeroDivisionError."
    assert "ZeroDivisionError" in thread["exception"]
    assert (end["level"], "KeyError" in end["exception"]) == ("critical", True)


@pytest.mark.parametrize(
    ("flags", "ends", "arrives"), [((), 1, 0), (("--log-level", "debug"), 1, 1), (("--no-access-log",), 0, 0)]
)
def test_a_terminal_shows_each_end(tmp_path: Path, flags: tuple[str, ...], ends: int, arrives: int) -> None:
    log_apart = ["sh", "-c", f'exec "$@" 2>{tmp_path / "log"}', "sh", *COMMAND]
    with serving("--model", script(tmp_path, ANSWER), *flags, command=log_apart) as served:
        httpx.post(f"{served.api}/responses", json={"input": "Hi"})
    log = (tmp_path / "log").read_text()
    assert log.count(" POST /v1/responses 200 completed in ") == log.count("response=resp_") == ends
    assert log.count("POST /v1/responses arrived id=req_") == arrives
