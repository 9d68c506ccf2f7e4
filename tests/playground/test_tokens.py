"""The tokens view in a real browser: where it opens, folds, search, confidence as colour, what changed."""

from typing import Any

import pytest

import inference
from tests.doubles.serving import scripted
from tests.playground.conftest import Opened, press

pytestmark = pytest.mark.browser

ANSWER = "<|channel|>final<|message|>The tide turns twice a day.<|return|>"
LONG = "Know this: " + " ".join(f"fact{n}" for n in range(400))


def with_instructions(opened: Opened, *turns: str) -> Any:
    found = opened(scripted(*turns))
    press(found.page, "Setup")
    found.page.get_by_label("The developer's message").fill(LONG)
    press(found.page, "Tokens")
    return found


def test_a_long_prompt_is_folded_and_the_view_opens_at_the_answer(opened: Opened) -> None:
    page = (found := with_instructions(opened, ANSWER)).page
    found.asked("When?")
    page.locator(".row.same").wait_for()
    page.reload()
    fold = page.locator(".row.folded", has_text="developer")
    fold.wait_for()
    assert "fact399" not in page.locator(".whole").inner_text()
    assert page.locator(".t.user", has_text="When").is_visible()  # the last message is not folded
    fold.get_by_role("button").click()
    page.evaluate("document.querySelector('.virtual').scrollTop = 0")
    page.locator(".t.developer", has_text="fact").first.wait_for()
    page.reload()
    press(page, "Tokens")
    press(page, "Tokens")
    page.wait_for_function(
        "() => { const [list, title] = ['.virtual', '.row.title:has(.completion)']"
        ".map(each => document.querySelector(each)?.getBoundingClientRect());"
        " return title && title.top >= list.top - 2 && title.bottom <= list.bottom; }"
    )


def test_a_search_unfolds_and_goes_to_each_hit(opened: Opened) -> None:
    page = (found := with_instructions(opened, ANSWER)).page
    found.asked("When?")
    page.locator(".row.same").wait_for()
    search = page.get_by_label("Search the tokens")
    search.fill("fact39 ")  # a text of several tokens
    page.get_by_role("status").get_by_text("1 of 1").wait_for()
    assert page.locator(".t.hit").count() >= 2
    search.fill("tide turns")
    page.locator(".t.final.hit").first.wait_for()
    search.fill("know")
    search.fill("a")
    page.get_by_role("status").get_by_text("1 of").wait_for()
    search.press("Enter")
    page.get_by_role("status").get_by_text("2 of").wait_for()
    search.fill("")
    page.locator(".row.folded").first.wait_for()


def test_a_click_on_the_minimap_goes_there(opened: Opened) -> None:
    words = "<|channel|>final<|message|>" + " ".join(f"w{n}" for n in range(900)) + "<|return|>"
    page = (found := opened(scripted(words))).page
    found.asked("Go")
    page.locator(".row.tokens").first.wait_for()
    page.locator(".minimap").click(position={"x": 6, "y": 2})
    page.wait_for_function("() => document.querySelector('.virtual').scrollTop === 0")
    box = page.locator(".minimap").bounding_box()
    page.locator(".minimap").click(position={"x": 6, "y": box["height"] - 2})
    page.locator(".row.same").wait_for()


def test_confidence_is_a_colour_and_another_word_can_be_tried(opened: Opened) -> None:
    page = (found := opened(inference.load("tiny"))).page
    answer = found.asked("Who are you?")
    page.get_by_label("Colours of the tokens").select_option("Probability")
    page.locator(".row.tokens .t.hot.h0").first.wait_for()
    press(page, "Show how sure the model was")
    heat = answer.locator(".heat.final")
    heat.wait_for()
    assert "demonstration model" in heat.inner_text()
    press(page, "Entropy")
    heat.locator("span", has_text="tiny").first.hover()
    bars = answer.locator(".bars .alternative")
    bars.first.wait_for()
    other = answer.locator(".bars li:not(.chosen) .alternative").first
    word = other.inner_text()
    answer.get_by_text("The grammar allowed").wait_for()
    press(page, "Times")
    page.get_by_label("The way of the request").get_by_text("Queue 1").wait_for()
    press(page, "Health")
    page.get_by_label("Prompt tokens of the last").wait_for()
    page.locator(".steps p", has_text="1 token decoded for 1 request").wait_for()
    other.click()
    page.get_by_text("instead:").wait_for()
    kept = page.get_by_label("Tokens of the prompt").inner_text()
    assert kept.endswith(" a" + word.strip('"')) or kept.rstrip().endswith(word.strip('"').strip())
    assert "tiny" in page.get_by_label("Tokens of As it was").inner_text()
    heat.locator("span", has_text="tiny").first.hover()
    answer.locator(".bars li:not(.chosen) .alternative").last.click()
    page.locator(".results + .runs > div").nth(2).wait_for()
    assert page.get_by_label("Tokens of As it was").is_visible()


def test_what_changed_since_the_turn_before_is_shown(opened: Opened) -> None:
    thinks = "<|channel|>analysis<|message|>Hm, tides.<|end|><|start|>assistant"
    page = (found := opened(scripted(thinks + ANSWER, ANSWER))).page
    found.asked("When?")
    assert page.get_by_role("button", name="Changes").count() == 0
    found.asked("And then?", 2)
    press(page, "Changes")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("It shares the first").wait_for()
    gone = dialog.get_by_label("The turn before").locator(".other").all_inner_texts()
    assert "".join(gone).replace("\u200b", "").count("tides") == 1  # the reasoning is left out
    assert "And then?" in dialog.get_by_label("The new prompt").inner_text()
