"""The composer in a real browser: switches, calls that wait, keys, and a connection that breaks."""

from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found
from tests.playground.conftest import NUMBERS, Opened, Visiting, held, press, says
from tests.tools.python.conftest import sandbox_of_servers

pytestmark = pytest.mark.browser

CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'


def chip(page: Any, name: str) -> Any:
    return page.locator(".chips").get_by_role("button", name=name)


@pytest.mark.usefixtures("sandboxed")
def test_python_is_on_at_first_and_an_answer_without_it_offers_it(opened: Opened) -> None:
    settings = Settings(model="tiny", python=sandbox_of_servers())
    page = (found := opened(inference.load("tiny"), settings)).page
    python = chip(page, "Python")
    python.wait_for()
    assert python.get_attribute("aria-pressed") == "true"
    assert chip(page, "Browser").count() == 0  # the server has none
    press(page, "Close the panel")
    python.click()
    assert "Please turn it on" in found.asked("What is 17 times 23?").inner_text()
    press(page, "Turn Python on and ask again")
    page.locator(".answer", has_text="391").wait_for()
    assert python.get_attribute("aria-pressed") == "true"
    assert page.get_by_text("2 / 2").count() == 1


def test_what_is_switched_at_the_composer_reaches_the_request(opened: Opened) -> None:
    page = (found := opened(scripted(says("{}"), says("{}")))).page
    chip(page, "Functions").click()
    press(page, "Add a function")
    chip(page, "Schema").click()
    page.get_by_label("JSON schema, enforced").fill('{"type": "object"}')
    page.get_by_label("Effort of the next answer").select_option("low")
    press(page, "Close the panel")
    found.asked("First")

    def sent() -> dict[str, Any]:
        response: dict[str, Any] = httpx.get(f"{found.url}/responses/{found.response_id()}").json()
        return response

    first = sent()
    assert [tool["name"] for tool in first["tools"]] == ["get_weather"]
    assert (first["reasoning"]["effort"], first["text"]["format"]["type"]) == ("low", "json_schema")
    chip(page, "Functions 1").click()
    chip(page, "Schema").click()
    found.asked("Second", 2)
    second = sent()
    assert (second["tools"], second["text"]["format"]["type"]) == ([], "text")


def test_a_call_that_waits_does_not_block_the_conversation(opened: Opened) -> None:
    page = (found := opened(scripted(CALL, says("Never mind."), says("Again.")))).page
    chip(page, "Functions").click()
    press(page, "Add a function")
    found.ask("Weather?")
    form = page.get_by_label("Result of get_weather")
    form.wait_for()
    found.ask("Something else")
    asks = page.get_by_role("alertdialog")
    asks.get_by_text("still waits for the result of get_weather").wait_for()
    asks.get_by_role("button", name="Back to the form").click()
    assert form.evaluate("place => place === document.activeElement")
    page.get_by_label("Message", exact=True).press("Enter")
    asks.get_by_role("button", name="Send without it").click()
    page.get_by_text("Never mind.", exact=True).wait_for()
    assert form.count() == 0
    items = httpx.get(f"{found.url}/responses/{found.response_id()}/input_items?order=asc").json()["data"]
    assert [item["type"] for item in items][-2:] == ["function_call_output", "message"]
    httpx.delete(f"{found.url}/responses/{found.response_id()}")  # all of it is sent again
    assert "Again." in found.asked("Go on", 3).inner_text()
    for status in ("400", "404"):  # the response and its trace are gone
        found.ignore(status)


def test_escape_stops_from_anywhere_and_one_key_opens_each_panel(opened: Opened) -> None:
    page = (found := opened(held(NUMBERS))).page
    found.ask("Count.")
    page.locator(".answer", has_text="5 6 7").wait_for()
    page.get_by_label("Search conversations").focus()
    page.keyboard.press("Escape")
    page.get_by_text("Stopped.").wait_for()
    keys = page.get_by_role("dialog", name="Keyboard")
    for key, name in (("w", "Workbench"), ("h", "Health"), ("s", "Setup"), ("t", "Tokens")):
        page.keyboard.press("Control+/")
        keys.get_by_text(name, exact=True).wait_for()
        page.keyboard.press(key)
        page.get_by_role("complementary", name=name).wait_for()
    page.keyboard.press("Control+/")
    keys.wait_for()
    page.keyboard.press("Escape")
    keys.wait_for(state="detached")
    page.keyboard.press("Control+Shift+T")  # the browser's own
    page.get_by_role("complementary", name="Tokens").wait_for()


class Cable:
    """A server whose connections can hang without a sign, as when a laptop changes its network."""

    def __init__(self) -> None:
        self.cut = False

    def __call__(self, app: Any) -> Any:
        async def through(scope: Any, receive: Any, send: Any) -> None:
            async def slow(message: Any) -> None:
                await until_found(self._connected, bool)
                await send(message)

            await app(scope, receive, slow if scope["type"] == "http" else send)

        return through

    async def _connected(self) -> bool:
        return not self.cut


def test_a_connection_that_hangs_is_seen_and_the_answer_read_on(opened: Opened) -> None:
    cable = Cable()
    page = (found := opened(engine := held(NUMBERS), wrap=cable)).page
    press(page, "Close the panel")
    found.ask("Count.")
    page.locator(".answer", has_text="5 6 7").wait_for()
    cable.cut = True
    page.get_by_role("status").get_by_text("The server cannot be reached").wait_for()
    cable.cut, engine.released = False, True
    page.get_by_text("The server cannot be reached").wait_for(state="detached")
    page.locator(".answer", has_text="117 118 119").wait_for()
    assert found.answered().locator(".answer").inner_text().split() == [str(n) for n in range(120)]
    found.ignore("ERR_")


def test_after_a_restart_the_page_states_what_is_gone(visit: Visiting) -> None:
    address: dict[str, Any] = {}
    with serving(held(NUMBERS)) as url:
        found = visit(url)
        page = found.open()
        press(page, "Close the panel")
        found.ask("Count.")
        page.locator(".answer", has_text="5 6 7").wait_for()
        address["port"] = int(url.split(":")[2].split("/")[0])
    page.locator(".lost").wait_for()
    with serving(scripted(says("Once more.")), port=address["port"]):
        page.get_by_text("The server no longer has this answer").wait_for()
        assert "5 6 7" in page.locator(".answer").first.inner_text()
        page.get_by_label("Regenerate").click()
        page.get_by_text("Once more.", exact=True).wait_for()
    for text in ("404", "ERR_"):
        found.ignore(text)
