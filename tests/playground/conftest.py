"""A real browser: Chromium, driven by Playwright. Without them, the tests are skipped, with the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.tools.python.conftest import bubblewrap

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is missing: `make web-test` installs it on Debian, or apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


_NEWEST = """async () => {
  const { current } = await import("./web/chat/store.js");
  const { head, nodes } = current();
  return nodes[head].steps.at(-1).id;
}"""


class Visit:
    """A page in a fresh profile, which records what must not happen: errors, and requests to other hosts."""

    def __init__(self, browser: Any, url: str, shots: Path, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.base = url.removesuffix("/v1") + "/"
        self.problems: list[str] = []
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", self._request)
        self._shots = shots

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.problems.append(f"another host: {request.url}")

    def open(self) -> Any:
        self.page.goto(self.base)
        self.page.get_by_text("See every token").wait_for()
        return self.page

    def ask(self, text: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def answered(self, count: int = 1) -> Any:
        """The last answer, once it is complete."""
        self.page.wait_for_function(
            "n => document.querySelectorAll('.message.assistant[aria-busy=\"false\"]').length >= n"
            " && !document.querySelector('.message.assistant[aria-busy=\"true\"]')",
            arg=count,
        )
        return self.page.locator(".message.assistant").last

    def response_id(self) -> str:
        """The id of the newest response of the conversation that is open."""
        id_: str = self.page.evaluate(_NEWEST)
        return id_

    def show_end(self) -> None:
        """Scrolls the tokens to their end: those that are out of sight are not in the page."""
        self.page.locator(".row.tokens").first.wait_for()
        self.page.evaluate("document.querySelector('.virtual').scrollTop = 1e9")

    def shot(self, name: str) -> None:
        self.page.wait_for_timeout(250)
        self.page.screenshot(path=str(self._shots / f"{name}.png"))


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: WEB_SHOTS, for a person to look at, or a temporary folder."""
    folder = Path(os.environ.get("WEB_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def sandboxed() -> None:
    """Skips the test where there is no sandbox for Python."""
    with ThreadPoolExecutor() as thread:  # Playwright's event loop runs in this one
        thread.submit(bubblewrap).result()


@pytest.fixture
def visit(browser: Any, shots: Path) -> Iterator[Any]:
    made: list[Visit] = []

    def make(url: str, **options: Any) -> Visit:
        made.append(Visit(browser, url, shots, **options))
        return made[-1]

    yield make
    for each in made:
        each.context.close()
        assert not each.problems
