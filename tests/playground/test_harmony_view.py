"""The Harmony view and the workbench in a real browser: slips, trace files, long answers, prompts by hand."""

import json
from pathlib import Path

import httpx
import pytest

import inference
from inference.backends.table import load
from tests.doubles.serving import scripted, serving
from tests.playground.conftest import Opened, Visiting, choose_file, press

pytestmark = pytest.mark.browser

NEXT = "<|end|><|start|>assistant"
HELLO = f"<|channel|>analysis<|message|>Be kind.{NEXT}<|channel|>final<|message|>Hello.<|return|>"
# A channel that Harmony does not know, and a type that the library takes for a recipient.
SLIPS = f"<|channel|>opinion<|message|>Well.{NEXT}<|channel|>final json<|message|>Done.<|return|>"


def test_slips_are_marked_and_explained(opened: Opened) -> None:
    page = (found := opened(scripted(SLIPS))).page
    found.asked("Hi")
    card = page.locator(".slip-card").first
    card.wait_for()
    assert "unknown channel" in card.inner_text()
    assert "Read as an answer to the user" in card.inner_text()
    assert page.locator(".t.slipped").count() == 1
    page.locator(".row.differs").wait_for()
    assert "to=json" in page.locator(".sides").last.inner_text()  # the library takes it for a recipient
    found.shot("slips")


def test_the_library_s_error_is_shown(opened: Opened) -> None:
    page = (found := opened(scripted("<|channel|>final<|message|>One.<|end|>Two.<|return|>"))).page
    found.asked("Hi")
    page.locator(".row.differs", has_text="stops at token").wait_for()
    found.shot("library-error")


def test_a_trace_is_saved_opened_elsewhere_and_replayed(
    visit: Visiting, opened: Opened, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    page = (found := opened(scripted(HELLO))).page
    found.asked("Hi")
    page.locator(".row.same").wait_for()
    with page.expect_download() as saved:
        press(page, "Save trace")
    saved.value.save_as(path)
    with serving(load(f"scripted:{path}")) as url:
        other = visit(url)
        page = other.open()
        choose_file(page, "Open a trace", path)
        page.locator(".row.same").wait_for()
        assert "Hello" in page.locator(".whole").inner_text()
        assert page.locator(".t.dropped").count() > 3  # the reasoning
        other.shot("opened-trace")
        press(page, "Close it")
        assert "Hello." in other.asked("Hi").inner_text()


def test_other_files_are_no_traces(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"format": "else"}')
    page = opened(scripted(HELLO)).page
    choose_file(page, "Open a trace", path)
    page.get_by_role("alert").get_by_text("cannot be opened: it is no trace").wait_for()


def test_fifty_thousand_tokens_are_drawn_as_they_come_into_sight(visit: Visiting, tmp_path: Path) -> None:
    words = "<|channel|>final<|message|>" + " ".join(f"word{n % 97}" for n in range(25_000)) + "<|return|>"
    path = tmp_path / "long.json"
    with serving(scripted(words)) as url:
        answer = httpx.post(f"{url}/responses", json={"input": "Go"}, timeout=60).json()
        trace = httpx.get(f"{url}/responses/{answer['id']}/trace", timeout=60).json()
        path.write_text(json.dumps(trace))
        assert len(trace["responses"][0]["generations"][0]["tokens"]) > 50_000
        page = visit(url).open()
        choose_file(page, "Open a trace", path)
        page.locator(".row.title").first.wait_for()
        assert page.locator(".row").count() < 200  # of thousands
        height = page.evaluate("document.querySelector('.virtual').scrollHeight")
        assert height > 50_000
        frames = page.evaluate(SCROLL)
        assert frames["shown"] > 30
        assert frames["rows"] < 200
        page.evaluate("document.querySelector('.virtual').scrollTop = 1e9")
        page.locator(".row.same").wait_for()


# Scrolls through the whole list in a hundred frames.
SCROLL = """async () => {
  const list = document.querySelector(".virtual");
  let shown = 0, rows = 0;
  const began = performance.now();
  for (let at = 0; at < 100; at++) {
    list.scrollTop = (list.scrollHeight / 100) * at;
    await new Promise(requestAnimationFrame);
    const count = document.querySelectorAll(".row.tokens").length;
    if (count) shown++;
    rows = Math.max(rows, count);
  }
  return { shown, rows, perSecond: 100000 / (performance.now() - began) };
}"""


# The lowest contrast of a token with what is behind it, as WCAG computes it, and which token has it.
CONTRAST = """() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (...colours) => {
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = getComputedStyle(document.querySelector(".panel")).backgroundColor;
  return [...document.querySelectorAll(".row.tokens .t")].map((token) => {
    const { color, backgroundColor, opacity } = getComputedStyle(token);
    const [text, behind] = [paint(ground, backgroundColor, color), paint(ground, backgroundColor)];
    const [dark, light] = [Math.min(text, behind), Math.max(text, behind)];
    return [Number(opacity) * ((light + 0.05) / (dark + 0.05)), token.className];
  }).sort(([a], [b]) => a - b)[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_tokens_can_be_read(opened: Opened, scheme: str) -> None:
    """Those that the next turn leaves out too: 4.5 is the contrast that WCAG asks of text."""
    found = opened(scripted(HELLO, SLIPS), color_scheme=scheme, viewport={"width": 1280, "height": 1400})
    page = found.page
    for number in (1, 2):
        found.ask("Hi")
        found.answered(number)
        page.locator(".row.same, .row.differs").first.wait_for()
        lowest, token = page.evaluate(CONTRAST)
        assert lowest >= 4.5, token
    assert page.locator(".t.dropped").count() > 0


SHORT = "<|channel|>final<|message|>Hello.<|return|>"


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
    page = opened(scripted(SHORT)).page
    read = "async text => (await import('./web/workbench/parse.js')).parseRequest(text)"
    assert page.evaluate(read, text) == {"input": 'a "b" c'}
