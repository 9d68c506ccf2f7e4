"""The workbench in a real browser: prompts by hand, continued from any token, and compared."""

import pytest

import inference
from tests.doubles.serving import scripted
from tests.playground.conftest import Opened, press

pytestmark = pytest.mark.browser

HELLO = "<|channel|>final<|message|>Hello.<|return|>"


def test_the_workbench_runs_and_compares(opened: Opened) -> None:
    page = (found := opened(inference.load("tiny"))).page
    press(page, "Workbench")
    page.get_by_label("A request: JSON, curl or Python").fill(
        "client.responses.create(\n    input='Who are you?',  # so\n    reasoning={'effort': 'low'},\n)"
    )
    press(page, "Show its prompt")
    page.locator(".strip .t.special").first.wait_for()
    prompt = page.get_by_label("The prompt; special tokens may be written out")
    assert "Who are you?" in prompt.input_value()
    assert "Reasoning: low" in prompt.input_value()
    page.get_by_label("Temperature").nth(1).fill("1.9")
    press(page, "Run both")
    page.get_by_text("Run B:").wait_for()
    assert page.locator(".strip").count() == 3
    page.locator(".strip").first.locator(".t").nth(5).click()
    assert page.locator(".strip .t.gone").count() > 10
    found.shot("workbench")


def test_the_model_continues_from_any_token_of_an_answer(opened: Opened) -> None:
    page = (found := opened(inference.load("tiny"))).page
    found.asked("Who are you?")
    page.locator(".row.same").wait_for()
    page.locator(".t.final.text", has_text="tiny").click()
    press(page, "Continue from here")
    last = page.locator(".strip .t.last")
    last.wait_for()
    panel = page.locator(".panel").bounding_box()
    assert panel["y"] < last.bounding_box()["y"] < panel["y"] + panel["height"]
    kept = page.locator(".strip").first.inner_text()
    assert kept.endswith(" tiny")
    assert "<|channel|>final<|message|>" in kept.replace("\u200b", "")
    press(page, "Run both")
    page.get_by_text("Run A:").wait_for()
    assert "demonstration" in page.get_by_label("Tokens of Run A").inner_text()
    press(page, "Tokens")
    press(page, "Workbench")
    assert page.locator(".strip").first.inner_text() == kept  # it stays while another panel is open
    found.shot("continued")


def test_two_prompts_are_compared(opened: Opened) -> None:
    page = opened(inference.load("tiny")).page
    press(page, "Workbench")
    press(page, "Show its prompt")
    page.get_by_label("Run B has a prompt of its own").check()
    other = page.get_by_label("The prompt of Run B")
    other.fill(other.input_value().replace("What is 17 times 23?", "Who are you?"))
    page.get_by_label("Temperature").nth(1).fill("0")
    press(page, "Run both")
    page.get_by_text("The runs part at token").wait_for()
    assert "arithmetic" in page.get_by_label("Tokens of Run A").inner_text()
    assert "demonstration" in page.get_by_label("Tokens of Run B").inner_text()


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "a \\"b\\" c"}',
        'curl x/v1/responses -H \'A: b\' -d \'{"input": "a \\"b\\" c"}\'',
        "client.responses.create(input='a \"b\" c')",
        'r = client.responses.create(\n    input="""a "b" c""",\n)',
    ],
)
def test_requests_are_read_as_people_paste_them(opened: Opened, text: str) -> None:
    page = opened(scripted(HELLO)).page
    read = "async text => (await import('./web/workbench/parse.js')).parseRequest(text)"
    assert page.evaluate(read, text) == {"input": 'a "b" c'}
