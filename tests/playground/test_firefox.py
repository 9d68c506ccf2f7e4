"""The playground in Firefox: load, send, stream, reload, stop; tokens, tools and WebSocket."""

import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

import inference
from tests.doubles.server_process import await_ready
from tests.doubles.serving import scripted, serving
from tests.playground.conftest import NUMBERS, held, says
from tests.playground.test_compare import MESSAGES, RAW
from tests.playground.test_markdown import DIAGRAM, FORMULAS
from tests.playground.test_views import DROP

pytestmark = pytest.mark.browser

MESSAGE = 'textarea[aria-label="Message"]'
OVER = "document.querySelectorAll('.message.assistant[aria-busy=\"false\"]').length === {}"
LAST = "[...document.querySelectorAll('.answer')].at(-1)?.innerText ?? ''"


FIREFOX = shutil.which("firefox") or shutil.which("firefox-esr")
KEYS = {"Enter": "\ue007", "Escape": "\ue00c"}
_WAIT_SECONDS = 180
# Firefox asks its maker for nothing: no updates, no experiments, no list of unsafe sites.
_OFF = """
app.normandy.enabled browser.safebrowsing.malware.enabled browser.safebrowsing.phishing.enabled
browser.shell.checkDefaultBrowser datareporting.policy.dataSubmissionEnabled toolkit.telemetry.enabled
extensions.systemAddon.update.enabled network.captive-portal-service.enabled
network.connectivity-service.enabled
"""
_PREFERENCES: dict[str, Any] = {**dict.fromkeys(_OFF.split(), False), "app.update.disabledForTesting": True}
_PREFERENCES["services.settings.server"] = "data:,"


class FirefoxPage:
    """One tab. `problems` has the errors of its console and its requests to other hosts than `base`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.base = ""
        self.problems: list[str] = []
        self._send("session.new", capabilities={})
        self._send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._tab = self._send("browsingContext.create", type="tab")["context"]

    def open(self, url: str) -> None:
        # First the page before is left: it still asks its own server whether it is there.
        self._send("browsingContext.navigate", context=self._tab, url="about:blank", wait="complete")
        self.problems.clear()
        self.base = url
        self._send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def reload(self) -> None:
        self._send("browsingContext.reload", context=self._tab, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The JSON value of an expression, which may be a promise."""
        wrapped = f"(async () => JSON.stringify(await ({expression})))()"
        target = {"context": self._tab}
        found = self._send("script.evaluate", expression=wrapped, target=target, awaitPromise=True)
        assert found["type"] == "success", found["exceptionDetails"]["text"]
        return json.loads(found["result"].get("value", "null"))

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not self.evaluate(f"Boolean({expression})"):
            text = "document.body.innerText.slice(0, 2000)"
            assert time.monotonic() < deadline, f"{expression} never came; the page:\n{self.evaluate(text)}"
            time.sleep(0.1)

    def wait_text(self, text: str) -> None:
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def click(self, selector: str) -> None:
        place = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{place} && !{place}.disabled")
        box = self.evaluate(f"{place}.scrollIntoView({{block: 'center'}}), {place}.getBoundingClientRect()")
        x, y = (int(box[start] + box[size] / 2) for start, size in (("x", "width"), ("y", "height")))
        moves: list[dict[str, Any]] = [{"type": "pointerMove", "x": x, "y": y}]
        moves += [{"type": f"pointer{way}", "button": 0} for way in ("Down", "Up")]
        self._act({"type": "pointer", "id": "mouse", "actions": moves})

    def type(self, text: str, *keys: str) -> None:
        strokes = [
            {"type": kind, "value": sign}
            for sign in [*text, *(KEYS[key] for key in keys)]
            for kind in ("keyDown", "keyUp")
        ]
        self._act({"type": "key", "id": "keyboard", "actions": strokes})

    def _act(self, source: dict[str, Any]) -> None:
        self._send("input.performActions", context=self._tab, actions=[source])

    def _send(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=_WAIT_SECONDS))
            if message["type"] == "event":
                self._note(message["method"], message["params"])
            elif message.get("id") == number:
                assert message["type"] == "success", f"{method}: {message.get('message')}"
                return message["result"]

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "log.entryAdded" and params["level"] in ("error", "warn"):
            self.problems.append(f"console: {params['text']}")
        elif event == "network.beforeRequestSent" and params["context"] == self._tab:
            url = params["request"]["url"]
            if self.base and not url.startswith((self.base, "data:", "blob:")):
                self.problems.append(f"another host: {url}")


@contextmanager
def firefox(profile: Path) -> Iterator[FirefoxPage]:
    assert FIREFOX is not None
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines))
    command = [FIREFOX, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0"]
    log = profile / "firefox.log"
    # A home of its own: Firefox refuses one that belongs to another user.
    environment = {**os.environ, "HOME": str(profile), "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        found = await_ready(
            process, lambda: re.search(r"ws://\S+", log.read_text(errors="replace")), log.read_text
        )
        with connect(f"{found[0]}/session", max_size=None, open_timeout=_WAIT_SECONDS) as socket:
            yield FirefoxPage(socket)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirefoxPage]:
    if FIREFOX is None:
        pytest.skip("Firefox is missing: apt install firefox-esr")
    with firefox(tmp_path_factory.mktemp("firefox")) as page:
        yield page


def start(page: FirefoxPage, url: str) -> None:
    """Every server has another port, so that the storage is a new one."""
    page.open(url.removesuffix("v1"))
    page.wait_text("See every token")


def ask(page: FirefoxPage, text: str) -> None:
    # Not by a click: the field moves when the page has learnt what the server offers.
    page.evaluate(f"document.querySelector({json.dumps(MESSAGE)}).focus()")
    page.type(text, "Enter")


def test_a_question_is_answered_and_its_tokens_are_shown(page: FirefoxPage) -> None:
    with serving(inference.load("tiny")) as url:
        start(page, url)
        ask(page, "Who are you?")
        page.wait(OVER.format(1))
        assert page.evaluate(LAST)
        page.wait("document.querySelector('.row.same')")
        page.click(".t.final.text")
        page.wait("document.querySelector('.inspector').innerText.includes('probability')")
    assert not page.problems


@pytest.mark.parametrize("transport", ["http", "socket"])
def test_an_answer_streams_and_stops(page: FirefoxPage, transport: str) -> None:
    with serving(held(NUMBERS)) as url:
        start(page, url)
        choose = f"import('/web/chat/options.js').then(m => m.options.set({{ transport: '{transport}' }}))"
        page.evaluate(choose)
        ask(page, "Count.")
        page.wait(f"({LAST}).includes('5 6 7')")
        assert "118" not in page.evaluate(LAST)
        page.click(MESSAGE)
        page.type("", "Escape")
        page.wait_text("Stopped.")
        assert "118" not in page.evaluate(LAST)
    assert not page.problems


def test_a_reload_in_mid_answer_reads_on(page: FirefoxPage) -> None:
    with serving(engine := held(NUMBERS)) as url:
        start(page, url)
        ask(page, "Count.")
        page.wait(f"({LAST}).includes('5 6 7')")
        page.reload()
        page.wait(f"({LAST}).includes('5 6 7')")
        engine.released = True
        page.wait(f"({LAST}).includes('117 118 119')")
        assert page.evaluate(LAST).split() == [str(number) for number in range(120)]
    assert not page.problems


def test_formulas_diagrams_and_many_conversations(page: FirefoxPage) -> None:
    with serving(scripted(says(f"{FORMULAS}\n\n{DIAGRAM}"))) as url:
        start(page, url)
        ask(page, "Show me")
        page.wait("document.querySelectorAll('.katex').length >= 5")
        page.wait("document.querySelector('.diagram[aria-busy=false]')")
        page.wait_text("This diagram cannot be drawn")
        page.click("[aria-label='Show how sure the model was']")
        page.wait("document.querySelector('.heat.final')")
        files = [["many.jsonl", f"{json.dumps(MESSAGES)}\n{json.dumps(RAW)}"]]
        page.evaluate(f"({DROP})({json.dumps(files)})")
        page.wait("document.querySelectorAll('.grid button').length === 2")
        page.click(".grid li:last-child button")
        page.wait_text("It is 18.")
        page.evaluate("history.back()")
        page.wait("document.querySelector('.grid')")
    assert not page.problems
