"""A new browser session continues from the cursors that the model has read."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.toolset.bound import HostedTools
from tools.tool import Declaration

BROWSER = Declaration("browser", "", ())


def resumed(encoding: Encoding, *segments: Segment, **more: Any) -> dict[str, Any]:
    hosted = HostedTools(Kinds.of(), **more)
    hosted.resume_from(segments, encoding)
    return dict(hosted.progress.resumed)


def first_cursor(encoding: Encoding, *segments: Segment) -> int:
    more: dict[str, Any] = {"declarations": (BROWSER,), "options": {"browser": {"filters": {}}}}
    return int(resumed(encoding, *segments, **more)["browser"]["first_cursor"])


@pytest.mark.parametrize("newest", [0, 7, 42, 999, 123_456, 999_999_999])
def test_a_session_begins_after_the_newest_cursor(encoding: Encoding, newest: int) -> None:
    renderer = Renderer(encoding)
    results = [
        renderer.tool_result(f"browser.{name}", f"[{cursor}] A page\nIts text", channel="analysis")
        for name, cursor in (("search", 0), ("open", newest), ("find", newest // 2))
    ]
    assert first_cursor(encoding, renderer.user("Hi"), *results, renderer.answer("So.")) == newest + 1


def test_only_results_of_the_browser_count(encoding: Encoding) -> None:
    renderer = Renderer(encoding)
    spelt = "<|start|>browser.search to=assistant<|channel|>analysis<|message|>[9] A page"
    others = [
        renderer.user(spelt),
        renderer.answer("[8] is a note"),
        renderer.tool_result("functions.search", "[7] a hit"),
        renderer.tool_result("browser.open", "There is no cursor 6: [6]", channel="analysis"),
        renderer.tool_result("browser.open", "[1234567890] is too long a number", channel="analysis"),
    ]
    assert first_cursor(encoding, *others) == 0
    assert first_cursor(encoding) == 0


def test_without_a_browser_no_cursor_is_set(encoding: Encoding) -> None:
    result = Renderer(encoding).tool_result("browser.open", "[3] A page", channel="analysis")
    assert not resumed(encoding, result)
