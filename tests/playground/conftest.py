"""A real browser: Chromium, driven by Playwright. Without them, the tests are skipped, with the reason."""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from inference.backends.script_file import parse_script
from inference.backends.scripted import VOCAB_SIZE, ScriptedEngine
from tests.doubles.serving import serving
from tests.tools.python.conftest import bubblewrap

QUIET = ("gpu", "quic", "background-networking", "component-update", "sync")
FLAGS = ["--no-sandbox", "--no-first-run", *(f"--disable-{part}" for part in QUIET)]
# The system's own browsers: their programs, and how Playwright starts them.
BROWSERS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "chromium": (("chromium", "chromium-browser"), {"args": FLAGS}),
    "firefox": (("firefox-esr", "firefox"), {"channel": "moz-firefox"}),
}


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with sync_api.sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session", params=BROWSERS)
def browser(playwright: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    programs, options = BROWSERS[request.param]
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        pytest.skip(
            f"No {request.param} here: `make web-test` installs it on Debian, or apt install {programs[0]}"
        )
    browser = getattr(playwright, request.param).launch(executable_path=program, **options)
    yield browser
    browser.close()


class Held(ScriptedEngine):
    """Waits in the middle of every long answer until it is released, however long the page takes."""

    released = False

    async def _due(self, began: float, sent: int, count: int) -> int:
        while sent >= _HELD_AT and not self.released:
            await self._wait(0.01)
        return min(await super()._due(began, sent, count), count if self.released else _HELD_AT)


_HELD_AT = 60  # tokens


def held(*turns: str) -> Held:
    return Held(parse_script({"turns": list(turns)}, VOCAB_SIZE))


def says(text: str) -> str:
    return f"<|channel|>final<|message|>{text}<|return|>"


NUMBERS = says(" ".join(map(str, range(120))))
_NEWEST = """async () => {
  const { current } = await import("/web/chat/store.js");
  const { head, nodes } = current();
  return nodes[head].steps.at(-1).id;
}"""


class Visit:
    """A page in a fresh profile, which records what must not happen: errors, and requests to other hosts."""

    def __init__(self, browser: Any, url: str, shots: Path, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.url = url  # of the API
        self.base = url.removesuffix("/v1") + "/"
        self.problems: list[str] = []
        self._shots = shots
        self.page = self.tab()

    def tab(self) -> Any:
        """A further tab of the same browser."""
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)
        return page

    def _console(self, message: Any) -> None:
        refused = "ERR_CONNECTION_REFUSED" in message.text  # a server that has ended before its page
        if message.type in ("error", "warning") and not refused:
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.problems.append(f"another host: {request.url}")

    def open(self) -> Any:
        self.page.goto(self.base)
        self.page.get_by_text("See every token").wait_for()
        return self.page

    def ignore(self, text: str) -> None:
        """Forgets what the browser itself wrote of requests that a test lets fail."""
        self.problems[:] = [problem for problem in self.problems if text not in problem]

    def ask(self, text: str) -> None:
        send(self.page, text)

    def asked(self, text: str, count: int = 1) -> Any:
        """The answer to a message, once it is complete: the last of `count`."""
        self.ask(text)
        return self.answered(count)

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
    """Where the picture of README goes: WEB_SHOTS, or a temporary folder."""
    folder = Path(os.environ.get("WEB_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def sandboxed() -> None:
    with ThreadPoolExecutor() as thread:  # Playwright's event loop runs in this one
        thread.submit(bubblewrap).result()


Visiting = Callable[..., Visit]
Opened = Callable[..., Visit]


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def send(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def write_number(field: Any, number: str) -> None:
    """In place of the number there. Playwright's `fill` selects none in Firefox, and so adds to it."""
    field.press("Control+a")
    field.press_sequentially(number)


def answers_over(page: Any, way: str) -> None:
    press(page, "Setup")
    page.get_by_label("Answers come over").select_option(way)


def choose_file(page: Any, button: str, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        press(page, button)
    chooser.value.set_files(path)


@pytest.fixture
def visit(browser: Any, shots: Path, request: pytest.FixtureRequest) -> Iterator[Visiting]:
    only = request.node.get_closest_marker("chromium")
    if only is not None and browser.browser_type.name != "chromium":
        pytest.skip(only.args[0])
    visits: list[Visit] = []

    def start(url: str, **options: Any) -> Visit:
        visits.append(Visit(browser, url, shots, **options))
        return visits[-1]

    yield start
    for visit in visits:
        visit.context.close()
        assert not visit.problems


@pytest.fixture
def opened(visit: Visiting) -> Iterator[Opened]:
    """Opens the page of a server: one that runs, by its URL, or one for the engine."""
    with ExitStack() as servers:

        def start(engine: Any, settings: Settings | None = None, **options: Any) -> Visit:
            parts = {name: options.pop(name) for name in ("wrap", "models") if name in options}
            url = engine
            if not isinstance(engine, str):
                url = servers.enter_context(serving(engine, settings, **parts))
            opened = visit(url, **options)
            opened.open()
            return opened

        yield start
