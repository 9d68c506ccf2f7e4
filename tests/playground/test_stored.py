"""What the server stores is opened in the playground by its id and continued there, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.doubles.serving import scripted, serving

pytestmark = pytest.mark.browser

Visiting = Callable[..., Any]
THINKS = "<|channel|>analysis<|message|>Be kind.<|end|><|start|>assistant"
HELLO = f"{THINKS}<|channel|>final<|message|>Hello.<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
DONE = "<|channel|>final<|message|>It is seven.<|return|>"
MORE = "<|channel|>final<|message|>And more.<|return|>"
NUMBERS = "<|channel|>final<|message|>" + " ".join(map(str, range(60))) + "<|return|>"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def open_stored(page: Any, id_: str) -> None:
    page.get_by_role("button", name="Open by id").click()
    page.get_by_label("Id of a response").fill(id_)
    page.keyboard.press("Enter")


def test_a_response_opens_with_all_before_it_and_continues(visit: Visiting) -> None:
    with serving(scripted(HELLO, CALL, DONE, MORE)) as url, httpx.Client(base_url=url) as ask:
        first = ask.post("responses", json={"input": "Greet me"}).json()["id"]
        again: dict[str, Any] = {"previous_response_id": first, "input": "What time?", "tools": [TOOL]}
        second = ask.post("responses", json=again).json()
        output = {"type": "function_call_output", "call_id": second["output"][-1]["call_id"], "output": "7"}
        third = {"previous_response_id": second["id"], "input": [output], "tools": [TOOL]}
        last = ask.post("responses", json=third).json()["id"]
        found = visit(url)
        page = found.open()
        open_stored(page, last)
        page.locator(".answer", has_text="It is seven.").wait_for()
        assert [each.inner_text() for each in page.locator(".bubble").all()] == ["Greet me", "What time?"]
        page.get_by_text("You answered").wait_for()
        page.locator(".fold.analysis summary").click()
        page.get_by_text("Be kind.").wait_for()
        found.shot("opened-response")
        found.ask("Go on")
        assert "And more." in found.answered(3).inner_text()
        id_ = found.response_id()
        assert ask.get(f"responses/{id_}").json()["previous_response_id"] == last
        open_stored(page, last)  # a second time, it is the same conversation
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.locator(".list li").count() == 1


def test_a_running_response_is_read_on(visit: Visiting) -> None:
    with serving(scripted(NUMBERS, tokens_per_second=40)) as url:
        body = {"input": "Count", "background": True}
        id_ = httpx.post(f"{url}/responses", json=body).json()["id"]
        found = visit(url)
        page = found.open()
        open_stored(page, id_)
        page.locator(".answer", has_text="57 58 59").wait_for()
        assert found.answered().locator(".answer").inner_text().split() == [str(n) for n in range(60)]


def test_a_conversation_opens_and_grows(visit: Visiting) -> None:
    with serving(scripted(HELLO, MORE, DONE)) as url, httpx.Client(base_url=url) as ask:
        items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Earlier"}]
        id_ = ask.post("conversations", json={"items": items}).json()["id"]
        ask.post("responses", json={"conversation": id_, "input": "Greet me"})
        found = visit(url)
        page = found.open()
        open_stored(page, id_)
        page.locator(".answer", has_text="Hello.").wait_for()
        found.ask("Go on")
        assert "And more." in found.answered(2).inner_text()
        texts = _texts(ask, id_)
        assert texts == ["Be brief.", "Earlier", "Greet me", "Hello.", "Go on", "And more."]
        page.get_by_label(
            "Edit", exact=True
        ).last.click()  # a branch leaves the server's conversation as it is
        page.get_by_label("Edit the message").fill("Or else")
        page.get_by_role("button", name="Send as a new branch").click()
        page.locator(".answer", has_text="It is seven.").wait_for()
        assert _texts(ask, id_) == texts


def _texts(ask: httpx.Client, id_: str) -> list[str]:
    items = ask.get(f"conversations/{id_}/items?order=asc").json()["data"]
    return [item["content"][0]["text"] for item in items if item["type"] == "message"]


def test_a_stored_chat_completion_is_in_the_list(visit: Visiting) -> None:
    with serving(scripted(HELLO, MORE)) as url:
        body = {"messages": [{"role": "user", "content": "Greet me"}], "store": True}
        httpx.post(f"{url}/chat/completions", json=body).raise_for_status()
        found = visit(url)
        page = found.open()
        page.get_by_role("button", name="Open by id").click()
        found.shot("open-stored")
        page.get_by_role("dialog").get_by_text("Hello.").click()
        page.locator(".bubble", has_text="Greet me").wait_for()
        found.ask("Go on")
        assert "And more." in found.answered(2).inner_text()


def test_unknown_ids_are_explained(visit: Visiting) -> None:
    with serving(scripted(HELLO)) as url:
        found = visit(url)
        page = found.open()
        open_stored(page, "resp_none")
        page.get_by_role("alert").get_by_text("No response with id 'resp_none' is stored").wait_for()
        page.get_by_label("Id of a response").fill("something")
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("An id begins with resp_, conv_ or chatcmpl-").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        found.problems[:] = [each for each in found.problems if "404" not in each]
