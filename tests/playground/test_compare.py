"""Answers side by side, what other programs write, and files, in a real browser."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doubles.serving import scripted
from tests.playground.conftest import Opened, choose_file, held, press, says
from tests.playground.test_views import DROP

pytestmark = pytest.mark.browser


def test_two_answers_stand_side_by_side(opened: Opened) -> None:
    first, big = scripted(says("I am the first."), loop=True), scripted(says("I am big."), loop=True)
    page = (found := opened(first, models={"big": big}, viewport={"width": 1400, "height": 900})).page
    press(page, "Close the panel")
    found.asked("Who are you?")
    press(page, "Compare with another answer")
    form = page.get_by_role("form", name="Another answer beside this one")
    form.get_by_label("Model").select_option("big")
    form.get_by_label("Effort").select_option("high")
    form.get_by_label("Temperature").fill("0.5")
    press(page, "Answer beside it")
    page.locator(".answer", has_text="I am big.").wait_for()
    left, right = (each.bounding_box() for each in page.locator(".pair > section").all())
    assert left["x"] + left["width"] <= right["x"]
    sent = httpx.get(f"{found.url}/responses/{found.response_id()}").json()
    assert (sent["model"], sent["reasoning"]["effort"], sent["temperature"]) == ("big", "high", 0.5)
    page.reload()
    other = page.get_by_label("big, effort high, temperature 0.5")
    other.get_by_text("I am big.").wait_for()
    other.get_by_role("button", name="Keep this one").click()
    page.locator(".pair").wait_for(state="detached")
    assert page.locator(".answer").all_inner_texts() == ["I am big."]
    assert page.get_by_text("2 / 2").count() == 1


def test_escape_stops_both(opened: Opened) -> None:
    numbers = says(" ".join(map(str, range(200))))
    page = (found := opened(held(says("Short."), numbers))).page
    found.asked("Count")
    press(page, "Compare with another answer")
    press(page, "Answer beside it")
    page.locator(".answer", has_text="3 4 5").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Stopped.").wait_for()
    assert page.locator('.message.assistant[aria-busy="true"]').count() == 0


RAW = (
    "<|start|>system<|message|>You are ChatGPT.<|end|><|start|>user<|message|>How warm is it?<|end|>"
    "<|start|>assistant<|channel|>analysis<|message|>A tool knows.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"a": 1}<|call|>'
    "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>18<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It is 18.<|return|>"
)
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "How warm is it?"}]},
    {"role": "assistant", "channel": "analysis", "content": "A tool knows."},
    {"author": {"role": "assistant"}, "recipient": "functions.weather", "content": '{"a": 1}'},
    {"author": {"role": "tool", "name": "functions.weather"}, "content": "18"},
    {"role": "assistant", "channel": "final", "content": "It is 18."},
]


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("raw.txt", RAW, 1),
        ("one.json", json.dumps({"messages": MESSAGES}), 1),
        ("list.json", json.dumps([MESSAGES, MESSAGES]), 2),
        (
            "many.jsonl",
            f"{json.dumps({'messages': MESSAGES})}\n{json.dumps(RAW)}\n{json.dumps(MESSAGES)}\n",
            3,
        ),
    ],
)
def test_conversations_of_other_programs_are_opened(opened: Opened, name: str, text: str, count: int) -> None:
    page = (found := opened(scripted(says("And more.")))).page
    page.evaluate(DROP, [[name, text]])
    if count > 1:
        page.get_by_role("status").get_by_text(str(count), exact=True).wait_for()
        page.locator(".grid button").last.click()
    page.locator(".answer", has_text="It is 18.").wait_for()
    assert page.locator(".list li").count() == 1
    assert page.locator(".bubble").last.inner_text() == "How warm is it?"
    page.get_by_text("Called weather").wait_for()
    page.locator(".given", has_text="18").wait_for()
    page.get_by_text("Reasoning").click()
    page.get_by_text("A tool knows.").wait_for()
    found.ask("Go on")  # the server learns all of it
    page.locator(".answer", has_text="And more.").wait_for()


def test_many_of_them_are_a_grid_with_filters(opened: Opened) -> None:
    page = (found := opened(scripted(says("Hello.")))).page
    response = httpx.post(f"{found.url}/responses", json={"input": "Greet the pilot"}).json()
    trace = httpx.get(f"{found.url}/responses/{response['id']}/trace").text
    starts = [{"role": "user", "content": f"Question {n}?"} for n in range(200)]
    rows = [[start, *MESSAGES[1 : 5 if n % 2 else 3]] for n, start in enumerate(starts)]
    page.evaluate(DROP, [["many.jsonl", "\n".join(map(json.dumps, rows))], ["kept.json", trace]])
    count, cards = page.get_by_role("status"), page.locator(".grid button")
    count.get_by_text("201", exact=True).wait_for()
    assert cards.count() == 120  # the others are drawn when they are asked for
    page.get_by_label("Kind").select_option("Without an answer")
    count.get_by_text("100 of 201").wait_for()
    page.get_by_label("Search the opened files").fill("question 4")
    count.get_by_text("6 of 201").wait_for()
    cards.first.click()
    page.locator(".bubble", has_text="Question 4?").wait_for()
    press(page, "The next one")  # of those that the filter leaves
    page.locator(".bubble", has_text="Question 40?").wait_for()
    page.go_back()
    page.go_back()
    press(page, "Show all")
    page.get_by_label("Tool", exact=True).select_option("weather")
    count.get_by_text("200 of 201").wait_for()
    press(page, "Show all")
    page.get_by_label("Search the opened files").fill("pilot")
    cards.click()
    page.locator(".row.response", has_text=response["id"]).wait_for()


PASTE = """([name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  const event = new ClipboardEvent("paste", { bubbles: true, cancelable: true });
  Object.defineProperty(event, "clipboardData", { value: data });
  document.querySelector(".composer textarea").dispatchEvent(event);
}"""


def test_files_are_pasted_and_documents_uploaded(opened: Opened) -> None:
    page = (found := opened(scripted(says("Read."), says("Seen.")))).page
    page.evaluate(PASTE, ["notes.md", list(b"The albatross sleeps.")])
    page.locator(".composer .files", has_text="notes.md").wait_for()
    found.asked("Read it")
    page.evaluate(DROP, [["rows.txt", "[INFO] no conversation\n[INFO] at all"]])  # some text
    page.locator(".composer .files", has_text="rows.txt").wait_for()
    page.get_by_label("Remove rows.txt").click()
    page.evaluate(PASTE, ["tides.pdf", list(b"%PDF-1.4 damaged")])
    page.locator(".composer .files", has_text="tides.pdf").wait_for()
    stored: list[dict[str, Any]] = httpx.get(f"{found.url}/files").json()["data"]
    assert [file["filename"] for file in stored] == ["tides.pdf"]
    found.ask("And this")
    page.get_by_role("alert").get_by_text("tides.pdf").wait_for()  # the server reads it: it is damaged
    found.ignore("400")


def test_the_way_of_a_request_is_a_timeline(opened: Opened) -> None:
    page = (found := opened(scripted(says("Tides turn."), tokens_per_second=50))).page
    found.asked("When?")
    page.locator(".row.same").wait_for()
    press(page, "Times")
    rows = page.get_by_label("The way of the request").locator("li")
    assert [each.inner_text().split("\n")[0] for each in rows.all()] == [
        "Prompt 1",
        "Completion 1",
        "Together",
    ]
    assert "tokens of prompt" in rows.first.inner_text()
    reads, writes = (rows.nth(at).locator("i").bounding_box() for at in (0, 1))
    assert reads["x"] < writes["x"]


SEARCH = '<|channel|>analysis to=browser.search<|message|>{"query": "albatross"}<|call|>'
FOUND = "<|channel|>final<|message|>It sleeps on the wing【0†L1】.<|return|>"


def test_files_that_the_model_searches_have_a_switch(opened: Opened, tmp_path: Path) -> None:
    pytest.importorskip("gpt_oss_server.items.file_search", reason="this server does not search files")
    (tmp_path / "birds.md").write_text("The albatross sleeps on the wing.\n")
    page = (found := opened(scripted(SEARCH, FOUND, says("No files.")))).page
    chip = page.locator(".chips").get_by_role("button", name="Files")
    chip.click()  # there is no store yet, so the setup opens
    choose_file(page, "Add files", tmp_path / "birds.md")
    page.get_by_role("checkbox", name="birds.md").wait_for()
    page.get_by_text("1 of 1 files read").wait_for()
    assert chip.get_attribute("aria-pressed") == "true"
    answer = found.asked("How does it sleep?")
    answer.get_by_text("Searched the files").click()
    assert "birds.md" in answer.locator(".hits").inner_text()
    chip.click()
    found.asked("And now?", 2)
    sent = httpx.get(f"{found.url}/responses/{found.response_id()}").json()
    assert sent["tools"] == []
