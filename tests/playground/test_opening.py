"""What the playground opens, in a real browser: links to traces, dropped files, what the server stores."""

import json
from typing import Any

import httpx
import pytest

from tests.doubles.serving import scripted, serving
from tests.playground.conftest import Opened, Visiting, press

pytestmark = pytest.mark.browser

GREETING = "<|channel|>final<|message|>Hello.<|return|>"
THINKS = "<|channel|>analysis<|message|>Be kind.<|end|><|start|>assistant"
GREETING = f"{THINKS}<|channel|>final<|message|>Hello.<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
DONE = "<|channel|>final<|message|>It is seven.<|return|>"
MORE = "<|channel|>final<|message|>And more.<|return|>"
NUMBERS = "<|channel|>final<|message|>" + " ".join(map(str, range(60))) + "<|return|>"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}

# Drops a text file on the page, as a file manager does.
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def answered(url: str) -> str:
    id_: str = httpx.post(f"{url}/responses", json={"input": "Hi"}).json()["id"]
    return id_


def test_a_link_opens_the_trace_of_a_response(visit: Visiting) -> None:
    with serving(scripted(GREETING, GREETING)) as url:
        id_ = answered(url)
        found = visit(url)
        found.page.goto(f"{found.base}#trace=v1/responses/{id_}/trace")
        found.page.locator(".row.response", has_text=id_).wait_for()
        assert "Hello" in found.page.locator(".whole").inner_text()
        found.shot("linked-trace")
        other = answered(url)  # another link in the same tab
        found.page.evaluate("hash => { location.hash = hash }", f"trace=v1/responses/{other}/trace")
        found.page.locator(".row.response", has_text=other).wait_for()


def test_the_page_copies_such_a_link(visit: Visiting, opened: Opened) -> None:
    page = (found := opened(scripted(GREETING))).page
    found.context.grant_permissions(["clipboard-read", "clipboard-write"])
    found.asked("Hi")
    press(page, "Copy link")
    page.get_by_text("The link is copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    other = visit(found.url)
    other.page.goto(link)
    other.page.locator(".row.same").wait_for()


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("https://evil.example/trace.json", "it is on another server"),
        ("//evil.example/trace.json", "it is on another server"),
        ("v1/models", "it is no trace"),
        ("v1/responses/resp_none/trace", "cannot be opened"),
    ],
)
def test_other_links_open_nothing(visit: Visiting, place: str, says: str) -> None:
    with serving(scripted(GREETING)) as url:
        found = visit(url)  # which fails if another host is asked
        found.page.goto(f"{found.base}#trace={place}")
        found.page.get_by_role("alert").get_by_text(says).wait_for()
        assert found.page.locator(".row.tokens").count() == 0
        found.ignore("404")


def test_dropped_files_are_traces_conversations_or_attachments(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING, GREETING, GREETING))).page
    id_ = answered(found.url)
    trace = httpx.get(f"{found.url}/responses/{id_}/trace").text
    page.evaluate(DROP, ["kept.json", trace])
    page.locator(".row.response", has_text=id_).wait_for()
    press(page, "Close it")
    page.evaluate(DROP, ["notes.txt", "The albatross sleeps on the wing."])
    page.locator(".files", has_text="notes.txt").wait_for()
    found.asked("Where does it sleep?")
    assert "albatross" in page.locator(".whole").inner_text()
    assert page.locator(".composer .files").count() == 0
    with page.expect_download() as saved:
        page.get_by_label("Export").click()
    conversation = json.loads(saved.value.path().read_text())
    conversation["conversation"] |= {"id": "imported", "title": "Imported"}
    page.evaluate(DROP, ["conversation.json", json.dumps(conversation)])
    page.get_by_role("heading", name="Imported").wait_for()
    page.evaluate(DROP, ["data.json", '{"a": 1}'])  # some other JSON is a text
    page.locator(".files", has_text="data.json").wait_for()
    page.evaluate(DROP, ["image.bin", "\0\1"])
    page.get_by_role("alert").get_by_text("image.bin is not a text file").wait_for()


def open_stored(page: Any, id_: str) -> None:
    press(page, "Open by id")
    page.get_by_label("Id of a response").fill(id_)
    page.keyboard.press("Enter")


def test_a_response_opens_with_all_before_it_and_continues(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING, CALL, DONE, MORE))).page
    with httpx.Client(base_url=found.url) as ask:
        first = ask.post("responses", json={"input": "Greet me"}).json()["id"]
        again: dict[str, Any] = {"previous_response_id": first, "input": "What time?", "tools": [TOOL]}
        second = ask.post("responses", json=again).json()
        output = {"type": "function_call_output", "call_id": second["output"][-1]["call_id"], "output": "7"}
        third = {"previous_response_id": second["id"], "input": [output], "tools": [TOOL]}
        last = ask.post("responses", json=third).json()["id"]
        open_stored(page, last)
        page.locator(".answer", has_text="It is seven.").wait_for()
        assert [each.inner_text() for each in page.locator(".bubble").all()] == ["Greet me", "What time?"]
        page.get_by_text("You answered").wait_for()
        page.locator(".fold.analysis summary").click()
        page.get_by_text("Be kind.").wait_for()
        found.shot("opened-response")
        assert "And more." in found.asked("Go on", 3).inner_text()
        id_ = found.response_id()
        assert ask.get(f"responses/{id_}").json()["previous_response_id"] == last
        open_stored(page, last)  # a second time, it is the same conversation
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.locator(".list li").count() == 1


def test_a_running_response_is_read_on(opened: Opened) -> None:
    page = (found := opened(scripted(NUMBERS, tokens_per_second=40))).page
    body = {"input": "Count", "background": True}
    id_ = httpx.post(f"{found.url}/responses", json=body).json()["id"]
    open_stored(page, id_)
    page.locator(".answer", has_text="57 58 59").wait_for()
    assert found.answered().locator(".answer").inner_text().split() == [str(n) for n in range(60)]


def test_a_conversation_opens_and_grows(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING, MORE, DONE))).page
    with httpx.Client(base_url=found.url) as ask:
        items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Earlier"}]
        id_ = ask.post("conversations", json={"items": items}).json()["id"]
        ask.post("responses", json={"conversation": id_, "input": "Greet me"})
        open_stored(page, id_)
        page.locator(".answer", has_text="Hello.").wait_for()
        assert "And more." in found.asked("Go on", 2).inner_text()
        texts = _texts(ask, id_)
        assert texts == ["Be brief.", "Earlier", "Greet me", "Hello.", "Go on", "And more."]
        page.get_by_label("Edit", exact=True).last.click()  # a branch leaves the server's as it is
        page.get_by_label("Edit the message").fill("Or else")
        press(page, "Send as a new branch")
        page.locator(".answer", has_text="It is seven.").wait_for()
        assert _texts(ask, id_) == texts


def _texts(ask: httpx.Client, id_: str) -> list[str]:
    items = ask.get(f"conversations/{id_}/items?order=asc").json()["data"]
    return [item["content"][0]["text"] for item in items if item["type"] == "message"]


def test_a_stored_chat_completion_is_in_the_list(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING, MORE))).page
    body = {"messages": [{"role": "user", "content": "Greet me"}], "store": True}
    httpx.post(f"{found.url}/chat/completions", json=body).raise_for_status()
    press(page, "Open by id")
    found.shot("open-stored")
    page.get_by_role("dialog").get_by_text("Hello.").click()
    page.locator(".bubble", has_text="Greet me").wait_for()
    assert "And more." in found.asked("Go on", 2).inner_text()


def test_unknown_ids_are_explained(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING))).page
    open_stored(page, "resp_none")
    page.get_by_role("alert").get_by_text("No response with id 'resp_none' is stored").wait_for()
    page.get_by_label("Id of a response").fill("something")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("An id begins with resp_, conv_ or chatcmpl-").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    found.ignore("404")
