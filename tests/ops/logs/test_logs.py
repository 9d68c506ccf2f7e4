"""The log: its set-up, and the lines of a request, however it ends, which never have its prompt."""

import asyncio
import json
import logging
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from gpt_oss_server.caller.record import ARRIVALS, ENDS, RequestRecord, without_quotes
from gpt_oss_server.observe.logs.setup import JsonForm, TextForm
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import APIS
from tests.doubles.apis.keyed import with_keys
from tests.doubles.commands import ANSWER, COMMAND, run, script
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.server_process import ServerProcess
from tests.doubles.server_process import serving as process_serving
from tests.doubles.serving import HELLO, leave_in_the_middle, scripted, serving
from tests.doubles.waiting import wait_until

LONG = "<|channel|>final<|message|>" + "word " * 400 + "<|return|>"
CHAT = APIS["/chat/completions"]
Fields = dict[str, Any]


class Lines:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, event: str) -> list[Fields]:
        found = [r for r in self._caplog.records if getattr(r, "event", None) == event]
        return [{"message": r.getMessage(), "level": r.levelname, **r.fields} for r in found]  # type: ignore[attr-defined]

    def ended(self, count: int = 1, event: str = "request ended") -> list[Fields]:
        wait_until(lambda: len(self.of(event)) >= count)
        found = self.of(event)
        assert len(found) == count
        return found


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO)
    return Lines(caplog)


@pytest.fixture
def url() -> Iterator[str]:
    with serving(scripted(HELLO, loop=True), Settings(python="off")) as base:
        yield base


def test_a_response_has_its_id_model_tokens_seconds_and_finish(url: str, lines: Lines) -> None:
    given = {"x-request-id": "mine"}
    response = httpx.post(f"{url}/responses", json={"input": "Hi"}, headers=given).json()
    [line] = lines.ended()
    expected = {"message": "POST /v1/responses 200 completed", "request_id": "mine", "model": "scripted"}
    expected |= {"response_id": response["id"], "status": 200, "finish": "completed", "client": "127.0.0.1"}
    expected |= {name: response["usage"][name] for name in ("input_tokens", "output_tokens")}
    assert line.items() >= {**expected, "cached_tokens": 0}.items()
    assert 0 < line["seconds"] < 60
    assert "key" not in line
    [arrived] = lines.of("request arrived")
    assert (arrived["message"], arrived["request_id"]) == ("POST /v1/responses arrived", "mine")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "finish"),
    [
        ("responses", {"input": "Hi"}, "completed"),
        ("responses", {"input": "Hi", "max_output_tokens": 3}, "incomplete"),
        ("chat/completions", CHAT, "stop"),
        ("chat/completions", {**CHAT, "max_tokens": 3, "n": 2}, "length"),
        ("completions", {"prompt": [1], "max_tokens": 3}, "length"),
    ],
)
def test_each_api_ends(url: str, lines: Lines, path: str, body: Fields, finish: str, stream: bool) -> None:
    assert httpx.post(f"{url}/{path}", json={**body, "stream": stream}).status_code == 200
    [line] = lines.ended()
    assert (line["finish"], line["model"], line["status"]) == (finish, "scripted", 200)
    assert all((line["output_tokens"], line["response_id"]))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", APIS)
def test_a_client_that_leaves_has_the_tokens_so_far(lines: Lines, path: str, stream: bool) -> None:
    engine = scripted(LONG, tokens_per_second=100)
    with serving(engine, Settings(python="off")) as url:
        asyncio.run(leave_in_the_middle(f"{url}{path}", {**APIS[path], "stream": stream}, engine))
        [line] = lines.ended()
    assert (line["finish"], line["status"]) == ("client left", 200 if stream else 499)
    assert line["output_tokens"] < 400
    assert line["input_tokens"] > 0


@pytest.mark.parametrize("leaves", [False, True])
def test_a_background_response_has_a_line_of_its_own_end(lines: Lines, leaves: bool) -> None:
    engine = scripted(LONG, tokens_per_second=800)
    body = {"input": "Hi", "background": True, "stream": leaves}
    with serving(engine, Settings(python="off")) as url:
        if leaves:
            asyncio.run(leave_in_the_middle(f"{url}/responses", body, engine))
        else:
            httpx.post(f"{url}/responses", json=body)
        [line] = lines.ended()
        assert line["finish"] == ("client left" if leaves else "queued")
        [end] = lines.ended(event="background response ended")
    assert end["message"] == "background response ended completed"
    assert (end["request_id"], end["response_id"]) == (line["request_id"], line["response_id"])
    assert end["output_tokens"] > 400
    assert end["seconds"] > line["seconds"]


def test_each_request_of_a_websocket_has_its_lines(url: str, lines: Lines) -> None:
    with connect(url.replace("http", "ws") + "/responses") as socket:
        for body in ({"input": "Hi"}, {"input": 7}):
            socket.send(json.dumps({"type": "response.create", **body}))
            while json.loads(socket.recv(timeout=20))["type"] not in ("response.completed", "error"):
                pass
    ended = lines.ended(3)
    assert [line["message"] for line in ended] == [
        "response.create /v1/responses completed",
        "response.create /v1/responses 400",
        "WEBSOCKET /v1/responses 101",
    ]
    assert ended[0]["output_tokens"] > 0
    assert ended[1]["error_code"] == "invalid_value"
    assert "output_tokens" not in ended[2]


def test_a_refusal_has_its_reason(url: str, lines: Lines) -> None:
    httpx.post(f"{url}/responses", json={"input": "Hi", "temperature": 9})
    httpx.get(f"{url}/nothing")
    httpx.post(f"{url}/responses", content=b"{")
    httpx.get(f"{url}/models", headers={"host": "evil.example"})
    ended = lines.ended(4)
    codes = ["invalid_value", "not_found", "invalid_json", "host_not_allowed"]
    assert [line["error_code"] for line in ended] == codes
    assert [line["status"] for line in ended] == [400, 404, 400, 403]
    assert ended[0]["error_param"] == "temperature"
    assert "temperature" in ended[0]["reason"]
    assert ended[1]["reason"].startswith("This server has no /v1/nothing")


def test_bytes_that_are_no_request_are_a_line_too(url: str, lines: Lines) -> None:
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"garbage\r\n\r\n")
        assert b" 400 " in raw.recv(1000)
    [line] = lines.ended()
    assert (line["message"], line["error_code"]) == ("CONNECTION 400", "invalid_http")


def test_a_failure_of_the_engine_is_a_warning_with_its_code(lines: Lines) -> None:
    with serving(ReplayEngine([], fails_after=0), Settings(python="off")) as url:
        assert httpx.post(f"{url}/responses", json={"input": "Hi"}).status_code == 503
        assert "failed" in httpx.post(f"{url}/responses", json={"input": "Hi", "stream": True}).text
        whole, streamed = lines.ended(2)
    assert (whole["level"], whole["status"], whole["finish"]) == ("WARNING", 503, "failed")
    assert (streamed["status"], streamed["finish"], streamed["error_code"]) == (200, "failed", "server_error")


def test_probes_and_files_of_pages_are_lines_only_at_level_debug(
    url: str, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    root = url.removesuffix("/v1")
    paths = ("/health", "/ready", "/live", "/")
    for path in paths:
        httpx.get(root + path)
    httpx.get(f"{url}/models")
    [line] = lines.ended()
    assert line["path"] == "/v1/models"
    caplog.set_level(logging.DEBUG)
    for path in paths:
        httpx.get(root + path)
    assert {line["path"] for line in lines.ended(5)} == {*paths, "/v1/models"}


def test_the_name_of_the_key_is_in_the_line_and_the_key_is_not(lines: Lines, tmp_path: Path) -> None:
    with serving(scripted(HELLO), with_keys(tmp_path, "sk-secret-of-alice name=alice")) as url:
        for key in ("sk-secret-of-alice", "sk-wrong"):
            httpx.post(f"{url}/responses", json={"input": "Hi"}, headers={"authorization": f"Bearer {key}"})
        known, unknown = lines.ended(2)
    assert (known["status"], known["key"]) == (200, "alice")
    assert (unknown["status"], unknown["error_code"]) == (401, "invalid_api_key")
    assert "key" not in unknown
    assert "sk-" not in str((known, unknown))


CANARY = "the patient's name is Zephyrine"
PLACES: list[Callable[[Any], Fields]] = [
    lambda text: {"input": text},
    lambda text: {"input": [{"role": text, "content": "x"}]},
    lambda text: {"input": [{"type": text}]},
    lambda text: {"input": [{"role": "user", "content": [{"type": text, "text": "x"}]}]},
    lambda text: {"input": [{"type": "function_call_output", "call_id": text, "output": "x"}]},
    lambda text: {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": text}]}]},
    lambda text: {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": text}]}]},
    lambda text: {"input": "x", "model": text},
    lambda text: {"input": "x", "instructions": [text]},
    lambda text: {"input": "x", "temperature": text},
    lambda text: {"input": "x", "tool_choice": text},
    lambda text: {"input": "x", "tools": [{"type": text}]},
    lambda text: {"input": "x", "tools": [{"type": "function", "name": text, "parameters": {}}]},
    lambda text: {"input": "x", "previous_response_id": text},
    lambda text: {"input": "x", "conversation": text},
    lambda text: {"input": "x", "include": [text]},
    lambda text: {"input": "x", "reasoning": {"effort": text}},
    lambda text: {"input": "x", "text": {"format": {"type": text}}},
    lambda text: {"input": "x", "metadata": {text: 7}},
    lambda text: {"input": "x", text: 7},
]


@pytest.mark.parametrize(
    "text", [CANARY, f'"{CANARY}" \\"', f"'{CANARY}' it's", CANARY * 99, [CANARY], {CANARY: 1}]
)
def test_no_line_has_a_prompt_of_any_place(url: str, caplog: pytest.LogCaptureFixture, text: Any) -> None:
    caplog.set_level(logging.DEBUG, logger=ENDS.name)
    caplog.set_level(logging.DEBUG, logger=ARRIVALS.name)
    statuses = set()
    for place in PLACES:
        try:
            body = place(text)
        except TypeError:  # not a key
            continue
        statuses.add(httpx.post(f"{url}/responses", json=body).status_code)
        statuses.add(httpx.post(f"{url}/chat/completions", json={**CHAT, **body}).status_code)
    httpx.post(f"{url}/responses", content=f'{{"input": "{CANARY}'.encode())
    assert 400 in statuses
    written = [
        form.format(r)
        for r in caplog.records
        for form in (TextForm(), JsonForm())
        if r.name in (ENDS.name, ARRIVALS.name)
    ]
    assert len(written) > 40
    assert not [line for line in written if "Zephyrine" in line]


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("The server's own words aren't quotes.", "The server's own words aren't quotes."),
        ("It is 'secret', not 'hidden'.", "It is …, not …."),
        ('It is "it\'s secret".', "It is …."),
        ("It is 'it\\'s secret' or `kept`.", "It is … or `kept`."),
        ("It is 'secret without an end", "It is …"),
        ("two\nlines", "two\\nlines"),
    ],
)
def test_what_a_message_quotes_is_left_out(message: str, kept: str) -> None:
    assert without_quotes(message) == kept


def line_of(form: logging.Formatter, level: int = logging.INFO, **fields: Any) -> str:
    record = logging.LogRecord("some.logger", level, "f.py", 1, "A %s\nline", ("long",), None)
    record.fields, record.event = fields, "request ended"
    return form.format(record)


def test_a_text_line_ends_with_its_fields() -> None:
    line = line_of(TextForm(), request_id="req_1", status=200, seconds=1.234, reason='a "b" c', key="k")
    assert line.endswith('A long\nline in 1.23 s id=req_1 reason="a \\"b\\" c" key=k')


def test_a_json_line_is_one_line_with_its_fields() -> None:
    line = line_of(JsonForm(), request_id="req_1", reason="näme\n")
    assert "\n" not in line
    read = json.loads(line)
    assert read.pop("time").endswith("+00:00")
    common = {"level": "info", "logger": "some.logger", "message": "A long\nline", "event": "request ended"}
    assert read == {**common, "request_id": "req_1", "reason": "näme\n"}


def test_a_path_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    record = RequestRecord("req_1", "GET", "/v1/x\n2026 INFO forged", {}, "::1")
    record.answered(404)
    record.ended()
    assert "\n" not in TextForm().format(caplog.records[-1])


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_no_level_writes_keys_and_prompts(tmp_path: Path) -> None:
    key = "sesame-of-ali"
    flags = ("--model", script(tmp_path, ANSWER), "--log-level", "debug", "--api-key", key)
    with process_serving(*flags) as served:
        for given in (key, f"{key}-wrong"):
            for headers in ({"Authorization": f"Bearer {given}"}, {"X-Api-Key": given}):
                httpx.post(f"{served.api}/responses", json={"input": "a secret"}, headers=headers)
        address = f"{served.api.replace('http', 'ws', 1)}/responses"
        with connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
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
    with process_serving("--model", script(tmp_path, ANSWER), *flags, command=log_apart) as served:
        httpx.post(f"{served.api}/responses", json={"input": "Hi"})
    log = (tmp_path / "log").read_text()
    assert log.count(" POST /v1/responses 200 completed in ") == log.count("response=resp_") == ends
    assert log.count("POST /v1/responses arrived id=req_") == arrives
