"""The picture of the playground in README: a real answer of the embedded model, with its tokens.

`WEB_SHOTS=docs/images pytest -m browser tests/playground/test_picture.py` takes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.serving import serving
from tests.tools.python.conftest import sandbox_of_servers

MOST_BYTES = 300_000
PICTURE = Path(__file__).parents[2] / "docs/images/playground.png"


@pytest.mark.browser
@pytest.mark.usefixtures("sandboxed")
def test_the_picture_shows_an_answer_with_its_tokens(visit: Callable[..., Any], shots: Path) -> None:
    with serving(inference.load("tiny"), Settings(python=sandbox_of_servers())) as url:
        found = visit(url, viewport={"width": 1360, "height": 850}, color_scheme="light")
        page = found.open()
        page.get_by_role("button", name="Setup").click()
        page.get_by_label("Temperature").fill("0")
        page.get_by_label("Python").check()
        page.get_by_role("button", name="Tokens", exact=True).click()
        found.ask("What is 17 times 23?")
        answer = found.answered()
        answer.get_by_text("Reasoning").first.click()
        answer.get_by_text("Ran Python").click()
        page.locator(".row.same").first.wait_for()
        found.show_end()
        page.locator(".t.final.text").last.hover()
        found.shot("playground")
        assert "391" in answer.inner_text()
    assert (shots / "playground.png").stat().st_size < MOST_BYTES


def test_the_picture_of_the_readme_is_small() -> None:
    content = PICTURE.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < MOST_BYTES
