"""The playground in Firefox: load, send, stream, reload, stop; tokens, tools and WebSocket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import inference
from tests.doubles.clients.firefox import FIREFOX, FirefoxPage, firefox
from tests.doubles.serving import scripted, serving

pytestmark = pytest.mark.browser

NUMBERS = "<|channel|>final<|message|>" + " ".join(map(str, range(120))) + "<|return|>"
MESSAGE = 'textarea[aria-label="Message"]'
OVER = "document.querySelectorAll('.message.assistant[aria-busy=\"false\"]').length === {}"
LAST = "[...document.querySelectorAll('.answer')].at(-1)?.innerText ?? ''"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirefoxPage]:
    if FIREFOX is None:
        pytest.skip("Firefox is missing: apt install firefox-esr")
    with firefox(tmp_path_factory.mktemp("firefox")) as page:
        yield page


def start(page: FirefoxPage, url: str) -> None:
    """Every server has another port, so that the storage is a new one."""
    page.problems.clear()
    page.open(url.removesuffix("v1"))
    page.wait_text("See every token")


def ask(page: FirefoxPage, text: str) -> None:
    page.click(MESSAGE)
    page.type(text, "Enter")


def test_a_question_is_answered_and_its_tokens_are_shown(page: FirefoxPage, shots: Path) -> None:
    with serving(inference.load("tiny")) as url:
        start(page, url)
        ask(page, "Who are you?")
        page.wait(OVER.format(1))
        assert page.evaluate(LAST)
        page.wait("document.querySelector('.row.same')")
        page.click(".t.final.text")
        page.wait("document.querySelector('.inspector').innerText.includes('probability')")
        page.shot(shots / "firefox.png")
    assert not page.problems


@pytest.mark.parametrize("transport", ["http", "socket"])
def test_an_answer_streams_and_stops(page: FirefoxPage, transport: str) -> None:
    with serving(scripted(NUMBERS, tokens_per_second=10)) as url:
        start(page, url)
        choose = f"import('./web/chat/options.js').then(m => m.options.set({{ transport: '{transport}' }}))"
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
    with serving(scripted(NUMBERS, tokens_per_second=40)) as url:
        start(page, url)
        ask(page, "Count.")
        page.wait(f"({LAST}).includes('5 6 7')")
        page.reload()
        page.wait(f"({LAST}).includes('117 118 119')")
        assert page.evaluate(LAST).split() == [str(number) for number in range(120)]
    assert not page.problems
