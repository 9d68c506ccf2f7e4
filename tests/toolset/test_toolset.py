"""The tools that a server offers, depending on its settings and on reachable tool servers."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.server.mcpserver import MCPServer

from gpt_oss_server.app import create_app
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.constraints import matcher
from gpt_oss_server.errors import ToolNotAvailable
from gpt_oss_server.items.hosted import HostedTool, Maker
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.toolset import offered as toolset
from gpt_oss_server.toolset import outside
from gpt_oss_server.toolset.offered import ToolsetMaker
from gpt_oss_server.toolset.outside import known_kinds
from tests.doubles.apis.asking import FINAL, Asking, call
from tests.doubles.server_process import free_port
from tests.doubles.server_process import serving as serving_process
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.echo_server import ServerThread, app_of
from tests.doubles.tools.scripted_tool import Scripted
from tests.doubles.tools.small_tools import Sums
from tools.mcp.serve import ServedTool
from tools.tool import ToolCall, ToolOutput
from tools.toolbox import Offer


def settings(port: int) -> Settings:
    return Settings(python="off", browser="off", tool_server=(f"http://127.0.0.1:{port}/mcp",))


def offered(made: toolset.Toolset) -> set[str]:
    return {declaration.namespace for declaration in made.toolbox.declarations}


async def test_a_tool_server_that_starts_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    maker = ToolsetMaker(replace(settings(port), browser=f"local:{tmp_path}", python="unsafe-local"))
    made = await maker.ready()
    for name in ("python", "browser"):  # of which nobody knows yet whether that server has it
        assert "does not answer" in made.refusals[name]
        assert name not in offered(made) | made.local
    server = ServerThread(ServedTool(Sums()).app(), port)
    try:
        await maker.ready()  # too soon for a second attempt
        assert "python" not in offered(made)
        monkeypatch.setattr(toolset, "_RETRY_AFTER", 0.0)
        monkeypatch.setattr(maker, "_retry_from", 0.0)
        assert await maker.ready() is made
        assert "python" not in made.refusals
        assert "browser" in offered(made)
        assert (await made.toolbox.run("c", "python", "20 + 22")).text.startswith("42")
        assert made.local == {"browser"}, "python runs elsewhere"
    finally:
        await maker.close()
        server.stop()


@pytest.mark.parametrize("address", ["nonsense", "ftp://a/b", "http://"])
def test_a_tool_server_that_is_no_address_is_refused_at_the_start(address: str) -> None:
    with pytest.raises(SettingsError, match=r"tool-server|http"):
        ToolsetMaker(replace(settings(1), tool_server=(address,)))


async def test_one_request_retries_a_hanging_tool_server(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def hangs(self: ToolsetMaker, made: toolset.Toolset) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(30)

    maker = ToolsetMaker(settings(free_port()))
    await maker.ready()
    monkeypatch.setattr(ToolsetMaker, "_connect_missing", hangs)
    monkeypatch.setattr(toolset, "_RETRY_WAIT", 0.01)
    monkeypatch.setattr(maker, "_retry_from", 0.0)
    for _ in range(5):
        await asyncio.wait_for(maker.ready(), 1)
    assert attempts == 1
    await maker.close()


async def test_grammars_are_prepared_at_start_for_any_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    created: dict[int, matcher.Grammars] = {}  # none yet, as in a new process
    monkeypatch.setattr(matcher, "_created", created)
    app = create_app(scripted("<|return|>"), Settings(python="off", browser="off"))
    async with app.router.lifespan_context(app):
        for thread in threading.enumerate():
            if thread.name == "grammars":
                thread.join()
        assert created


ROOT = Path(__file__).resolve().parents[2]
ROLL = "<|channel|>commentary to=dice.roll <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
OFF = Settings(python="off", browser="off")


async def repeats(call: ToolCall) -> ToolOutput:
    return ToolOutput(call.arguments)


async def test_a_container_is_offered_to_requests_that_name_it() -> None:
    server = MCPServer("box")

    @server.tool(name="exec")
    def execute(cmd: list[str]) -> str:
        return " ".join(cmd)

    box, run = {"type": "container"}, call("container.exec", '{"cmd": ["ls", "-l"]}')
    with ServerThread(app_of(server, "http")) as thread:
        given = replace(OFF, tool_server=(thread.url(),), browser=f"local:{ROOT / 'docs'}")
        ask = Asking(run, FINAL, settings=given, tools=ToolsetMaker(given))
        assert "namespace container" not in await ask.prompt(tools=[{"type": "web_search"}])
        assert "namespace browser" not in await ask.prompt(tools=[box])
        running = await ask.service.start(LOCAL, {"input": "Hi", "tools": [box]})
        assert [batch async for batch in running]
        [made, message] = running.response["output"]  # OpenAI's own types know no such tool
        assert (made["type"], made["output"], message["type"]) == ("mcp_call", "ls -l", "message")
        await ask.service.close()
    with pytest.raises(ToolNotAvailable, match="--tool-server URL"):
        await Asking(FINAL, settings=OFF, tools=ToolsetMaker(OFF))(tools=[box])


class Echo(HostedTool):
    namespace = "echo"
    types = ("echo",)

    def maker(self, settings: Settings) -> Maker:
        async def make() -> Offer:
            return Offer(Scripted(repeats, "echo", ()))

        return make


class Unmade(Echo):
    def maker(self, settings: Settings) -> Maker:
        async def make() -> Offer:
            raise RuntimeError("the echo is gone")

        return make


def ran(base: str, tool: dict[str, Any]) -> dict[str, Any]:
    """The item of the call in a response that declares this tool."""
    answer = httpx.post(f"{base}/responses", json={"input": "Hi", "tools": [tool]}, timeout=60).json()
    call, message = answer["output"]
    assert message["content"][0]["text"] == "Done."
    again = httpx.post(f"{base}/responses", json={"input": [call], "tools": [tool]}, timeout=60)
    assert again.status_code == 200
    return dict(call)


def test_a_package_adds_a_tool_to_a_server_that_finds_it(tmp_path: Path) -> None:
    target, script = tmp_path / "installed", tmp_path / "script.json"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    copy = tmp_path / "dice"  # setuptools builds within the folder
    copy.mkdir()
    for file in (ROOT / "examples" / "dice").glob("*.*"):
        (copy / file.name).write_bytes(file.read_bytes())
    subprocess.run([*command, "--target", str(target), str(copy)], check=True)
    script.write_text(json.dumps({"turns": [ROLL, ANSWER, ANSWER]}))
    path = os.pathsep.join([str(target), str(ROOT)])
    with serving_process("--model", f"scripted:{script}", env={"PYTHONPATH": path}, fresh=True) as server:
        call = ran(server.api, {"type": "dice", "sides": 1})
        wrong = {"input": "Hi", "tools": [{"type": "dice", "sides": "six"}]}
        refused = httpx.post(f"{server.api}/responses", json=wrong, timeout=60).json()
    assert (call["type"], call["server_label"], call["name"]) == ("mcp_call", "dice", "roll")
    assert (call["status"], call["output"]) == ("completed", "1")
    assert refused["error"]["message"] == "`tools[0].sides` must be an integer."


def test_a_program_gives_a_tool_and_the_log_names_it(caplog: pytest.LogCaptureFixture) -> None:
    call = "<|channel|>commentary to=echo <|constrain|>json<|message|>hello<|call|>"
    caplog.set_level("INFO")
    with serving(scripted(call, ANSWER, ANSWER), tools=[Echo()]) as base:
        item = ran(base, {"type": "echo"})
    assert (item["server_label"], item["output"]) == ("echo", "hello")
    assert "create_app(tools=…) adds the tool echo." in caplog.text


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, in which Python finds those that are installed."""
    monkeypatch.syspath_prepend(tmp_path)
    outside._installed.cache_clear()
    yield tmp_path
    outside._installed.cache_clear()


def install(site: Path, module: str, value: str) -> None:
    info = site / "bad-0.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 0.2\n")
    (info / "entry_points.txt").write_text(f"[{outside.GROUP}]\nbad = {value}\n")
    (site / f"{value.partition(':')[0]}.py").write_text(module)


HEAD = "from gpt_oss_server.items.hosted import HostedTool\n\nclass Bad(HostedTool):\n    "
MAKER = "namespace = 'new'\n    def maker(self, settings):\n        raise KeyError('HOME')"
BROKEN = [
    ("import a_package_that_is_missing", "ModuleNotFoundError: No module named 'a_package"),
    ("def Bad():\n    raise RuntimeError('no')", "RuntimeError: no. Correct the package"),
    ("class Bad: ...", "it made a Bad, not a HostedTool"),
    (f"{HEAD}pass", "whose `namespace` is ''"),
    (f"{HEAD}namespace = 'functions'", "not 'functions'"),
    (f"{HEAD}namespace = 'browser'", "this server has the name 'browser' already"),
    (f"{HEAD}namespace, types = 'new', ('shell',)", "has the type 'shell' already"),
    (f"{HEAD}namespace, item_type = 'new', 'message'", "has items of type 'message' already"),
    (f"{HEAD}{MAKER}", "cannot make its tool 'new': KeyError: 'HOME'"),
]


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_broken_or_clashing_package_is_named(site: Path, number: int) -> None:
    module, why = BROKEN[number]
    install(site, module, f"bad{number}:Bad")  # a module of another name is not cached
    with pytest.raises(SettingsError) as raised:
        ToolsetMaker(OFF, known_kinds())
    assert str(raised.value).startswith("The package bad 0.2")
    assert why in str(raised.value)


def test_a_broken_package_ends_the_start_with_a_sentence(site: Path) -> None:
    install(site, "1 +", "bad:Bad")
    path = os.pathsep.join([str(site), str(ROOT)])
    command = [sys.executable, "-m", "gpt_oss_server", "serve", "--model", "random:tiny", "--port", "0"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "The package bad 0.2, which adds the tool 'bad' (bad:Bad), cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_tools_of_one_name_are_both_named() -> None:
    with pytest.raises(SettingsError, match=r"create_app\(tools=…\) has the name 'echo' and the type 'echo'"):
        create_app(scripted(ANSWER), OFF, tools=[Echo(), Echo()])


class Misnamed(Echo):
    namespace, types = "other", ("other",)  # but its declaration says "echo"


GONE = "The echo tool cannot be used here. The server's log says why."
MISNAMED = "The other tool cannot be used here. It declares itself as 'echo'."


@pytest.mark.parametrize(("tool", "why"), [(Unmade(), GONE), (Misnamed(), MISNAMED)])
def test_a_tool_that_cannot_start_is_refused_and_others_are_served(tool: HostedTool, why: str) -> None:
    with serving(scripted(ANSWER), tools=[tool]) as base:
        body = {"input": "Hi", "tools": [{"type": tool.types[0]}]}
        refused = httpx.post(f"{base}/responses", json=body, timeout=60)
        served = httpx.post(f"{base}/responses", json={"input": "Hi"}, timeout=60)
    assert (refused.status_code, served.status_code) == (400, 200)
    assert refused.json()["error"]["message"] == why
