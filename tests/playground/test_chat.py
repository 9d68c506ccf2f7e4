"""The playground's chat in a real browser, over HTTP and WebSocket, with the embedded model and with scripts.

`WEB_SHOTS=docs/images pytest -m browser tests/playground/test_chat.py` takes the picture in README again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving
from tests.playground.conftest import Opened, Visit, Visiting, answers_over, choose_file, held, press, says
from tests.tools.python.conftest import sandbox_of_servers

pytestmark = pytest.mark.browser

LONG = "<|channel|>analysis<|message|>Counting." + "<|end|><|start|>assistant<|channel|>final<|message|>"
NUMBERS = LONG + " ".join(map(str, range(120))) + "<|return|>"
HELLO = "<|channel|>final<|message|>Hello **there**.<|return|>"
AGAIN = "<|channel|>final<|message|>Once more.<|return|>"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pages = tmp_path_factory.mktemp("pages")
    (pages / "harbour.md").write_text("# The harbour\n\nHarbour depth is forty metres.\n\nShips come.\n")
    with serving(inference.load("tiny"), Settings(model="tiny", browser=f"local:{pages}")) as url:
        yield url


def use(page: Any, *, temperature: str = "0", tools: tuple[str, ...] = ()) -> None:
    press(page, "Setup")
    page.get_by_label("Temperature").fill(temperature)
    for tool in tools:
        page.get_by_label(tool).check()
    press(page, "Tokens")


def test_a_question_is_answered_and_every_token_shown(tiny: str, opened: Opened) -> None:
    page = (found := opened(tiny)).page
    use(page)
    answer = found.asked("Who are you?")
    assert "demonstration" in answer.inner_text()
    page.get_by_text("StreamableParser reads the same").wait_for()
    assert "<|start|>" in page.locator(".row.tokens").first.inner_text()
    page.locator(".t.final.text").first.hover()
    assert "probability" in page.locator(".inspector").inner_text()
    answer.get_by_text("Reasoning").click()
    assert page.locator(".fold.analysis .plain").inner_text()


def test_a_weather_tool_gets_an_answer_by_hand(tiny: str, opened: Opened) -> None:
    page = (found := opened(tiny)).page
    use(page)
    press(page, "Setup")
    press(page, "Add a function")
    press(page, "Tokens")
    found.ask("What is the weather in Paris?")
    page.get_by_label("Result of get_weather").fill('{"temperature": 21}')
    press(page, "Continue")
    page.get_by_text("You answered").wait_for()
    assert "21" in found.answered().locator(".answer").last.inner_text()


def test_results_that_are_given_in_advance_are_sent_without_asking(opened: Opened) -> None:
    def call(city: str) -> str:
        head = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        return f'{head}{{"city": "{city}"}}<|call|>'

    page = (found := opened(scripted(call("Oslo"), HELLO, call("Rome"), AGAIN, call("Bern")))).page
    press(page, "Setup")
    press(page, "Add a function")
    for place, result in (("oslo", "4 degrees"), ("rome", "20 degrees")):
        press(page, "Add a result that is sent without asking")
        page.get_by_label("Arguments contain").last.fill(place)
        page.get_by_label("Result that is sent").last.fill(result)
    found.ask("Oslo?")
    page.get_by_text("4 degrees").wait_for()
    assert "Hello there." in found.answered().inner_text()
    found.ask("Rome?")
    page.get_by_text("20 degrees").wait_for()
    page.get_by_text("Once more.").wait_for()
    found.ask("Bern?")
    page.get_by_label("Result of get_weather").wait_for()  # no row fits


def test_the_browser_s_sources_are_links(tiny: str, opened: Opened) -> None:
    page = (found := opened(tiny)).page
    use(page, tools=("Browser",))
    answer = found.asked("Search for the harbour depth.")
    assert answer.get_by_text("Searched").count() >= 1
    assert page.get_by_label("Sources").count() == 1
    press(page, "The quoted lines")
    assert "Harbour depth is forty metres." in page.locator(".quoted .hit").inner_text()


def test_editing_and_regenerating_make_branches(opened: Opened) -> None:
    turns = scripted(HELLO, AGAIN, says("And more."), says("Third.\n\n" + "More.\n\n" * 30))
    page = (found := opened(turns, viewport={"width": 1000, "height": 380})).page
    found.ask("Hi")
    assert found.answered().locator("strong").inner_text() == "there"
    page.get_by_label("Regenerate").click()
    page.get_by_text("Once more.", exact=True).wait_for()
    assert page.get_by_text("2 / 2").count() == 1
    page.get_by_label("Previous version").click()
    page.get_by_text("Hello there.").wait_for()
    found.asked("Go on", 2)
    page.get_by_label("Edit", exact=True).first.click()
    page.get_by_label("Edit the message").fill("Hi again")
    press(page, "Send as a new branch")
    page.get_by_text("Third.", exact=True).wait_for()
    found.answered()
    page.get_by_label("Previous version").click()
    page.get_by_text("And more.", exact=True).wait_for()
    before = page.locator(".branches").first.bounding_box()
    page.get_by_label("Next version").first.click()
    page.get_by_text("Third.", exact=True).wait_for()
    press(page, "Setup")
    press(page, "Tokens")
    assert page.locator(".branches").first.bounding_box() == before  # it keeps its place
    page.get_by_label("Previous version").click()
    page.get_by_text("Hello there.").wait_for()
    page.reload()
    page.get_by_text("Hello there.").wait_for()


def test_a_reload_in_mid_answer_reads_on_and_stop_stops(opened: Opened) -> None:
    page = (found := opened(engine := held(NUMBERS))).page
    found.ask("Count.")
    page.locator(".answer", has_text="10 11 12").wait_for()
    page.reload()
    page.locator('.message.assistant[aria-busy="true"]', has_text="10 11 12").wait_for()
    engine.released = True
    page.locator(".answer", has_text="117 118 119").wait_for()
    assert found.answered().locator(".answer").inner_text().split() == [str(n) for n in range(120)]
    engine.released = False
    found.ask("Count again.")
    page.locator(".answer", has_text="5 6 7").nth(1).wait_for()
    page.get_by_label("Stop").click()
    page.get_by_text("Stopped.").wait_for()


def test_a_connection_that_is_lost_in_mid_answer_is_opened_again(opened: Opened) -> None:
    page = (found := opened(engine := held(NUMBERS))).page
    found.ask("Count.")
    page.locator(".answer", has_text="5 6 7").wait_for()
    found.context.set_offline(True)
    page.locator(".lost").wait_for()
    found.context.set_offline(False)
    engine.released = True
    page.locator(".answer", has_text="117 118 119").wait_for()
    assert found.answered().locator(".answer").inner_text().split() == [str(n) for n in range(120)]
    found.ignore("ERR_")  # the browser's own


def test_dark_and_narrow(visit: Visiting) -> None:
    code = "Here:\n\n```python\nprint('hi')  # greet\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two"
    with serving(scripted(f"<|channel|>final<|message|>{code}<|return|>")) as url:
        phone = visit(url, viewport={"width": 390, "height": 780}, color_scheme="dark")
        page = phone.open()
        phone.asked("Show me")
        assert page.locator(".hl-string").inner_text() == "'hi'"
        wide = "document.documentElement.scrollWidth <= 390"
        assert page.evaluate(wide)
        press(page, "Tokens")
        page.locator(".row.tokens").first.wait_for()
        assert page.evaluate(wide)


def test_at_any_width_a_message_can_be_written(visit: Visiting) -> None:
    with serving(scripted(HELLO)) as url:
        for width in (1440, 1180, 1024, 901, 900, 390):
            page = visit(url, viewport={"width": width, "height": 780}).open()
            box = page.get_by_label("Message", exact=True).bounding_box()
            assert box["width"] > 200, width
            assert box["x"] + box["width"] <= width


@pytest.mark.chromium("Playwright sees no downloads in Firefox")
def test_a_conversation_is_exported_and_imported(opened: Opened, tmp_path: Path) -> None:
    page = (found := opened(scripted(HELLO))).page
    found.asked("Remember the albatross")
    with page.expect_download() as saved:
        page.get_by_label("Export").click()
    saved.value.save_as(tmp_path / "kept.json")
    page.get_by_label("Delete").click()
    page.get_by_text("See every token").wait_for()
    choose_file(page, "Import", tmp_path / "kept.json")
    page.get_by_text("Hello there.").wait_for()
    page.get_by_label("Search conversations").fill("albatross")
    assert page.locator(".list li").count() == 1
    page.get_by_label("Search conversations").fill("pelican")
    assert page.locator(".list li").count() == 0


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.chromium("Playwright's pictures add a style that the page's policy refuses in Firefox")
def test_the_picture_shows_an_answer_with_its_tokens(opened: Opened, shots: Path) -> None:
    look = {"viewport": {"width": 1360, "height": 850}, "color_scheme": "light"}
    found = opened(inference.load("tiny"), Settings(python=sandbox_of_servers()), **look)
    page = found.page
    use(page, tools=("Python",))
    found.asked("Who are you?")  # what the first answer waits for is over
    press(page, "New conversation")
    answer = found.asked("What is 17 times 23?")
    answer.get_by_text("Reasoning").first.click()
    answer.get_by_text("Ran Python").click()
    page.locator(".row.same").first.wait_for()
    page.locator(".tool-card").first.wait_for()
    found.show_end()
    page.locator(".t.final.text").last.hover()
    found.shot("playground")
    assert "391" in answer.inner_text()
    assert (shots / "playground.png").stat().st_size < 300_000


SCHEMA = {
    "type": "object",
    "properties": {"tags": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/tag"}}},
    "required": ["tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["red", "green"]}},
}


def enforce(page: Any, schema: str) -> None:
    press(page, "Setup")
    page.get_by_label("JSON schema, enforced").fill(schema)


def test_an_answer_of_the_model_follows_the_schema(opened: Opened) -> None:
    page = (found := opened(inference.load("tiny"))).page
    enforce(page, json.dumps(SCHEMA))
    page.get_by_text("The server enforces it").wait_for()
    found.asked("Which colours?")
    page.get_by_text("Follows the schema.").wait_for()


def test_an_answer_that_breaks_it_is_shown_with_the_place(opened: Opened) -> None:
    wrong = json.dumps({"tags": ["red", "blue"]})
    page = (found := opened(scripted(f"<|channel|>final<|message|>{wrong}<|return|>"))).page
    enforce(page, json.dumps(SCHEMA))
    found.asked("Which colours?")
    page.get_by_text("Does not follow the schema, at /tags/1").wait_for()


def test_a_schema_that_cannot_be_enforced_is_explained_before_anything_is_sent(opened: Opened) -> None:
    page = (found := opened(scripted("<|channel|>final<|message|>1<|return|>"))).page
    enforce(page, '{"type": "string", "pattern": "(?=a)b"}')
    page.get_by_text("look-ahead").wait_for()
    page.get_by_label("JSON schema, enforced").fill("{")
    page.get_by_text("The schema of the answer is no valid JSON").wait_for()
    found.ignore("400")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"tags": ["red"]}', {"valid": True}),
        ('{"tags": "red"}', {"valid": False, "where": "/tags"}),
        ('{"tags": [], "more": 1}', {"valid": False, "where": "/more", "why": "It is not allowed here."}),
        ("{}", {"valid": False, "where": "/"}),
        ('{"tags": [', {"valid": False, "where": ""}),
    ],
)
def test_the_page_finds_where_a_text_leaves_a_schema(
    opened: Opened, text: str, verdict: dict[str, Any]
) -> None:
    page = opened(scripted("<|channel|>final<|message|>1<|return|>")).page
    check = "async ([text, schema]) => (await import('/web/lib/schema.js')).checked(text, schema)"
    assert verdict.items() <= page.evaluate(check, [text, SCHEMA]).items()


def over_socket(found: Visit) -> Visit:
    answers_over(found.page, "WebSocket")
    press(found.page, "Tokens")
    return found


@pytest.mark.chromium("Playwright sees no WebSockets in Firefox")
def test_one_connection_carries_all_turns_of_a_conversation(opened: Opened) -> None:
    page = (found := over_socket(opened(inference.load("tiny")))).page
    sockets, frames = list[str](), list[str]()
    page.on("websocket", lambda one: sockets.append(one.url))
    page.on("websocket", lambda one: one.on("framesent", lambda text: frames.append(text)))
    assert "demonstration" in found.asked("Who are you?").inner_text()
    page.locator(".row.same").wait_for()  # the tokens of a response over WebSocket can be read too
    found.asked("And what can you do?", 2)
    assert len(sockets) == 1
    assert sockets[0].endswith("/v1/responses")
    assert '"previous_response_id"' in frames[1]
    assert "Who are you" not in frames[1]
    page.reload()
    page.get_by_text("And what can you do?").first.wait_for()
    found.ask("Goodbye.")  # the response is stored: another connection continues it
    found.answered(3)
    assert len(sockets) == 2
    assert "Who are you" not in frames[2]


def test_stop_and_reload_end_an_answer_and_the_conversation_continues(opened: Opened) -> None:
    page = (found := over_socket(opened(held(NUMBERS, NUMBERS, HELLO)))).page
    found.ask("Count.")
    page.locator(".answer", has_text="5 6 7").wait_for()
    page.get_by_label("Stop").click()
    page.get_by_text("Stopped.").wait_for()
    found.ask("Count again.")
    page.locator(".answer", has_text="5 6 7").nth(1).wait_for()
    page.reload()
    page.get_by_text("an answer over WebSocket ends with its page").wait_for()
    assert "5 6 7" in page.locator(".answer").last.inner_text()
    assert "Hello there." in found.asked("And now?", 3).inner_text()
    health = httpx.get(f"{found.url.removesuffix('/v1')}/health").json()
    assert health["counters"]["cancelled"] == 2


@pytest.mark.chromium("Playwright sees no WebSockets in Firefox")
def test_a_response_that_the_server_forgot_is_sent_again(opened: Opened) -> None:
    page = (found := over_socket(opened(scripted(HELLO, AGAIN)))).page
    found.asked("Hi")
    id_ = found.response_id()
    assert httpx.delete(f"{found.url}/responses/{id_}").status_code == 200
    frames: list[str] = []
    page.on("websocket", lambda one: one.on("framesent", lambda text: frames.append(text)))
    page.reload()
    page.get_by_text("Hello there.").wait_for()
    assert "Once more." in found.asked("More", 2).inner_text()
    assert ["previous_response_id" in frame for frame in frames] == [True, False]
    assert "Hello **there**" in frames[1]
    found.ignore("404")  # the trace is gone


def test_where_websocket_is_off_the_page_says_so(opened: Opened) -> None:
    page = (found := over_socket(opened(scripted(HELLO), Settings(websocket=False)))).page
    found.ask("Hi")
    page.get_by_role("alert").get_by_text("switched off on this server").wait_for()
    for own in ("WebSocket connection to", "establish a connection"):  # refused, as the browser writes
        found.ignore(own)
    found.ignore("405")
    answers_over(page, "HTTP, in the background")
    page.get_by_label("Regenerate").click()
    page.get_by_text("Hello there.").wait_for()


def test_the_chosen_model_and_effort_answer(opened: Opened) -> None:
    first, big = (
        scripted(f"<|channel|>final<|message|>I am {name}.<|return|>", loop=True) for name in ("1", "2")
    )
    page = (found := opened(first, models={"big": big})).page
    press(page, "Setup")
    selects = page.locator(".setup select")
    selects.nth(0).select_option("big")
    selects.nth(1).select_option("high")
    assert page.get_by_label("Message", exact=True).get_attribute("placeholder") == "Message big"
    assert "I am 2." in found.asked("Who are you?").inner_text()
    rendered = page.request.get(f"{found.url}/responses/{found.response_id()}").json()
    assert (rendered["model"], rendered["reasoning"]["effort"]) == ("big", "high")
