"""The tools that a server offers, depending on its settings and on reachable tool servers."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_oss_server.app import create_app
from gpt_oss_server.constraints import matcher
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset import bind
from gpt_oss_server.toolset import offered as toolset
from gpt_oss_server.toolset.offered import ToolsetMaker
from tests.doubles.server_process import free_port
from tests.doubles.serving import scripted
from tests.doubles.tools.echo_server import ServerThread
from tests.doubles.tools.small_tools import Sums
from tools.mcp.serve import ServedTool


def settings(port: int) -> Settings:
    return Settings(python="off", browser="off", tool_server=(f"http://127.0.0.1:{port}/mcp",))


def offered(made: toolset.Toolset) -> set[str]:
    return {declaration.namespace for declaration in made.toolbox.declarations}


async def test_a_tool_server_that_starts_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    maker = ToolsetMaker(replace(settings(port), browser=f"local:{tmp_path}"))
    made = await maker.ready()
    assert "python" in made.refusals
    assert "python" not in offered(made)
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
    finally:
        await maker.close()
        server.stop()


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


PARSED_ON_THE_LOOP = """
import sys
from gpt_oss_server import app
from gpt_oss_server.items import mcp
from tools.mcp.endpoints import public_form
public_form({"type": "mcp", "server_label": "x", "server_url": "https://user:secret@a.example/mcp"})
sys.exit(bool({"mcp", "mcp.client", "mcp_types"} & sys.modules.keys()))
"""


def test_reading_an_mcp_tool_imports_none_of_mcps_packages() -> None:
    assert subprocess.run([sys.executable, "-c", PARSED_ON_THE_LOOP], check=False).returncode == 0


def test_mcps_packages_are_imported_by_a_function_of_its_own_for_a_thread() -> None:
    assert bind._connect().__name__ == "connect_servers"


async def test_grammars_are_prepared_at_start_for_any_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    created: dict[int, matcher.Grammars] = {}  # none yet, as in a new process
    monkeypatch.setattr(matcher, "_created", created)
    app = create_app(scripted("<|return|>"), Settings(python="off", browser="off"))
    async with app.router.lifespan_context(app):
        for thread in threading.enumerate():
            if thread.name == "grammars":
                thread.join()
        assert created
