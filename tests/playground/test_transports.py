"""The playground over WebSocket, in a real browser: the same chat, and where it ends differently."""

import httpx
import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted
from tests.playground.conftest import Opened, Visit, answers_over, press

pytestmark = pytest.mark.browser

NUMBERS = "<|channel|>final<|message|>" + " ".join(map(str, range(120))) + "<|return|>"
HELLO = "<|channel|>final<|message|>Hello **there**.<|return|>"
AGAIN = "<|channel|>final<|message|>Once more.<|return|>"


def over_socket(found: Visit) -> Visit:
    answers_over(found.page, "WebSocket")
    press(found.page, "Tokens")
    return found


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
    found.shot("websocket")


def test_stop_and_reload_end_an_answer_and_the_conversation_continues(opened: Opened) -> None:
    page = (found := over_socket(opened(scripted(NUMBERS, NUMBERS, HELLO, tokens_per_second=40)))).page
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
    found.ignore("WebSocket connection to")  # refused, as the browser itself writes
    found.ignore("405")
    answers_over(page, "HTTP, in the background")
    page.get_by_label("Regenerate").click()
    page.get_by_text("Hello there.").wait_for()
