"""Tools of a real MCP server in the playground, in a real browser: their listing, calls and approvals."""

from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.mcp_asking import ANSWER, call
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.echo_server import watched
from tests.playground.conftest import Visiting, press

pytestmark = pytest.mark.browser


def with_server(found: Any, url: str, *, asks: bool) -> Any:
    page = found.open()
    press(page, "Setup")
    press(page, "Add a server")
    page.get_by_label("Label").fill("echoes")
    page.get_by_label("Address").fill(url)
    page.get_by_label("Ask me before each call").set_checked(asks)
    press(page, "Tokens")
    return page


def test_tools_are_listed_and_called(visit: Visiting) -> None:
    script = scripted(call("echo", text="seven bells"), ANSWER)
    with watched() as (server, seen), serving(script, Settings(allow_private_hosts=True)) as url:
        found = visit(url)
        page = with_server(found, server, asks=False)
        answer = found.asked("Say it")
        answer.get_by_text("Tools of echoes").click()
        assert "Says the same." in answer.locator(".hits").inner_text()
        answer.get_by_text("echoes: echo").click()
        assert '"text": "seven bells"' in answer.locator(".code").inner_text()
        assert answer.locator(".output").inner_text() == "seven bells"
        found.show_end()
        page.locator(".tool-card", has_text="echo").wait_for()
        assert seen.calls == 1
        found.shot("mcp")


def test_a_call_waits_for_approval(visit: Visiting) -> None:
    script = scripted(call("echo", text="first"), ANSWER, call("echo", text="second"), ANSWER)
    with watched() as (server, seen), serving(script, Settings(allow_private_hosts=True)) as url:
        found = visit(url)
        page = with_server(found, server, asks=True)
        found.ask("Say it")
        group = page.get_by_role("group", name="May echoes run echo?")
        group.wait_for()
        assert '"text": "first"' in page.locator(".code").inner_text()
        assert seen.calls == 0
        found.shot("approval")
        group.get_by_role("button", name="Approve").click()
        page.get_by_text("Approved").wait_for()
        page.locator(".answer", has_text="Done.").wait_for()
        assert seen.calls == 1
        found.ask("Once more")
        group.wait_for()
        group.get_by_role("button", name="Deny").click()
        page.get_by_text("Denied").wait_for()
        page.locator(".answer", has_text="Done.").nth(1).wait_for()
        assert seen.calls == 1


def test_a_tool_that_fails_is_shown_with_its_error(visit: Visiting) -> None:
    script = scripted(call("fail", why="the sea is calm"), ANSWER)
    with watched() as (server, _), serving(script, Settings(allow_private_hosts=True)) as url:
        found = visit(url)
        with_server(found, server, asks=False)
        answer = found.asked("Try")
        answer.get_by_text("echoes: fail").click()
        assert "the sea is calm" in answer.locator(".output.bad").inner_text()
