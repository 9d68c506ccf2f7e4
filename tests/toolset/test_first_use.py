"""What the first request of a kind needs is loaded or prepared off the event loop."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from gpt_oss_server.app import create_app
from gpt_oss_server.constraints import matcher
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset import bind
from tests.doubles.serving import scripted

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
