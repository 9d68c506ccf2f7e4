"""Links to traces and files dropped on the playground, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.doubles.serving import scripted, serving

pytestmark = pytest.mark.browser

Visiting = Callable[..., Any]
HELLO = "<|channel|>final<|message|>Hello.<|return|>"

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
    with serving(scripted(HELLO, HELLO)) as url:
        id_ = answered(url)
        found = visit(url)
        found.page.goto(f"{found.base}#trace=v1/responses/{id_}/trace")
        found.page.locator(".row.response", has_text=id_).wait_for()
        assert "Hello" in found.page.locator(".whole").inner_text()
        found.shot("linked-trace")
        other = answered(url)  # another link in the same tab
        found.page.evaluate("hash => { location.hash = hash }", f"trace=v1/responses/{other}/trace")
        found.page.locator(".row.response", has_text=other).wait_for()


def test_the_page_copies_such_a_link(visit: Visiting) -> None:
    with serving(scripted(HELLO)) as url:
        found = visit(url)
        page = found.open()
        found.context.grant_permissions(["clipboard-read", "clipboard-write"])
        found.ask("Hi")
        found.answered()
        page.get_by_role("button", name="Copy link").click()
        page.get_by_text("The link is copied").wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
        other = visit(url)
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
    with serving(scripted(HELLO)) as url:
        found = visit(url)  # which fails if another host is asked
        found.page.goto(f"{found.base}#trace={place}")
        found.page.get_by_role("alert").get_by_text(says).wait_for()
        assert found.page.locator(".row.tokens").count() == 0
        found.problems[:] = [each for each in found.problems if "404" not in each]


def test_dropped_files_are_traces_conversations_or_attachments(visit: Visiting) -> None:
    with serving(scripted(HELLO, HELLO, HELLO)) as url:
        id_ = answered(url)
        trace = httpx.get(f"{url}/responses/{id_}/trace").text
        found = visit(url)
        page = found.open()
        page.evaluate(DROP, ["kept.json", trace])
        page.locator(".row.response", has_text=id_).wait_for()
        page.get_by_role("button", name="Close it").click()
        page.evaluate(DROP, ["notes.txt", "The albatross sleeps on the wing."])
        page.locator(".files", has_text="notes.txt").wait_for()
        found.ask("Where does it sleep?")
        found.answered()
        assert "albatross" in page.locator(".whole").inner_text()
        assert page.locator(".composer .files").count() == 0
        with page.expect_download() as saved:
            page.get_by_label("Export").click()
        conversation = json.loads(saved.value.path().read_text())
        conversation["conversation"]["id"] = "imported"
        conversation["conversation"]["title"] = "Imported"
        page.evaluate(DROP, ["conversation.json", json.dumps(conversation)])
        page.get_by_role("heading", name="Imported").wait_for()
        page.evaluate(DROP, ["data.json", '{"a": 1}'])  # some other JSON is a text
        page.locator(".files", has_text="data.json").wait_for()
        page.evaluate(DROP, ["image.bin", "\0\1"])
        page.get_by_role("alert").get_by_text("image.bin is not a text file").wait_for()
