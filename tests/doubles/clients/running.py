"""Runs real clients; `make clients` installs them to .venv/clients, the Python ones to several environments.

Clients see neither this repository's packages nor the user's own configuration.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.settings import Settings
from tests.doubles.apis.messages_asking import check_events
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".venv" / "clients"))
COMMANDS = FOLDER / "node_modules" / ".bin"  # with a Node.js that is new enough for all of them
_PATH = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"
SCRIPTS = ROOT / "tests" / "clients" / "scripts"
SECONDS = 300  # generous: clients are large, and the machine may be busy

THINK = "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant"


def final(text: str) -> str:
    return f"{THINK}<|channel|>final<|message|>{text}<|return|>"


def call(function: str, arguments: object) -> str:
    text = json.dumps(arguments)
    return f"{THINK}<|channel|>commentary to=functions.{function} <|constrain|>json<|message|>{text}<|call|>"


HELLO = final("Hello!")
SUNNY = final("It is sunny in Paris.")
PLACE = final('{"city":"Paris"}')
WEATHER = call("get_weather", {"city": "Paris"})


def command(name: str, environment: str = "python") -> str:
    """The path of an installed client: a command of npm, or of a Python environment."""
    for folder in (COMMANDS, FOLDER / environment / "bin"):
        if (folder / name).exists():
            return str(folder / name)
    pytest.skip(f"{name} is not installed in {FOLDER}: make clients")


def run(
    arguments: Sequence[str],
    folder: Path,
    *,
    env: dict[str, str] | None = None,
    may_fail: bool = False,
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = {"HOME": str(folder), "PWD": str(folder), "NO_COLOR": "1", "PATH": _PATH, **(env or {})}
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(arguments, cwd=folder, env={**clean, **own}, timeout=seconds, **options)
    assert may_fail or done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


class Agent:
    """A coding agent with a home and a project of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path = command(name)
        self.home, self.project = folder / "home", folder / "project"
        for path in (self.home, self.project):
            path.mkdir(exist_ok=True)


def abort_in_mid_stream(agent: Callable[[Path, str], Any], folder: Path) -> None:
    """Starts a client, interrupts it while the engine generates, and waits until the engine is free."""
    engine = scripted("<|channel|>final<|message|>" + "word " * 20_000, tokens_per_second=50)
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with serving(engine) as url:
        client = agent(folder, url)
        process = subprocess.Popen(client.arguments("Talk"), cwd=client.project, env=client.env, **quiet)
        try:
            wait_until(lambda: engine.active == 1, "the client sends no request")
            process.send_signal(signal.SIGINT)
            wait_until(lambda: engine.active == 0, "the turn continues without a client")
        finally:
            process.kill()
            process.wait()


def run_script(name: str, folder: Path, url: str, environment: str = "python") -> Any:
    """Runs a script of `scripts/` and returns the JSON of its last line of output."""
    code = (SCRIPTS / name).read_text(encoding="utf-8")
    shutil.copy(SCRIPTS / "shared.py", folder)
    return json.loads(run_code(name, code, folder, environment, BASE_URL=url).splitlines()[-1])


def run_code(name: str, code: str, folder: Path, environment: str = "python", **variables: str) -> str:
    """Runs code for a client, as a file of this name, and returns its output."""
    (folder / name).write_text(code, encoding="utf-8")
    interpreter = _interpreter(name, folder, environment)
    return run([interpreter, str(folder / name)], folder, env=variables).stdout


@dataclass
class Exchange:
    method: str
    path: str
    headers: dict[str, str]
    sent: bytes = b""
    status: int = 0
    got: bytes = b""
    ended: bool = False  # the answer was sent completely

    @property
    def body(self) -> Any:
        return json.loads(self.sent) if self.sent else None

    @property
    def answer(self) -> Any:
        return json.loads(self.got)

    @property
    def is_stream(self) -> bool:
        return self.got.startswith((b"event:", b"data:", b":"))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line[6:]) for line in self.got.decode().splitlines() if line.startswith("data: {")]


@dataclass
class Recorder:
    app: ASGIApp = field(init=False)
    exchanges: list[Exchange] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(scope["method"], scope["path"], headers)
        self.exchanges.append(exchange)

        async def received() -> Message:
            message = await receive()
            exchange.sent += message.get("body", b"")
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            else:
                exchange.got += message.get("body", b"")
                exchange.ended = not message.get("more_body", False)
            await send(message)

        await self.app(scope, received, sent)

    def of(self, path: str) -> list[Exchange]:
        return [each for each in self.exchanges if each.path == path and each.method == "POST"]

    def check(self) -> None:
        """Every answer succeeded, or lets the client go on otherwise; every whole stream is correct."""
        for exchange in self.exchanges:
            goes_on = exchange.status == 426 or b"thread_unsupported_request" in exchange.got
            assert exchange.status == 200 or goes_on, (exchange.path, exchange.status, exchange.got[:500])
            if exchange.is_stream and exchange.ended:
                check_answer(exchange)


def check_answer(exchange: Exchange) -> None:
    if exchange.path == "/v1/responses":
        check_stream(exchange.events)
    elif exchange.path == "/v1/messages":
        check_events([event for event in exchange.events if event["type"] != "ping"])
    else:
        assert exchange.got.endswith(b"data: [DONE]\n\n")
        kind = "chat.completion.chunk" if "chat" in exchange.path else "text_completion"
        assert {event["object"] for event in exchange.events} == {kind}
    assert b"<|" not in exchange.got, "Harmony markup in an answer"


@contextmanager
def recorded(engine: Any, settings: Settings | None = None) -> Iterator[tuple[str, Recorder]]:
    """A server's URL, and all that passes; what has passed at the end is checked."""
    recorder = Recorder()

    def wrap(app: ASGIApp) -> Recorder:
        recorder.app = app
        return recorder

    with serving(engine, settings, wrap=wrap) as url:
        yield url, recorder
    recorder.check()


def run_with(
    name: str, turns: Sequence[object], folder: Path, environment: str = "python", **settings: Any
) -> tuple[Any, Recorder]:
    """Runs a script against scripted turns, and returns the results and exchanges."""
    with recorded(scripted(*turns, loop=False), Settings(**settings)) as (url, recorder):
        return run_script(name, folder, url, environment), recorder


def _interpreter(name: str, folder: Path, environment: str) -> str:
    if name.endswith(".py"):
        return command("python", environment)
    node = shutil.which("node", path=_PATH)
    if node is None or not (FOLDER / "node_modules").exists():
        pytest.skip(f"Node.js or its packages are not installed in {FOLDER}: make clients")
    (folder / "node_modules").symlink_to(FOLDER / "node_modules")
    return node
