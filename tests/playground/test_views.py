"""What the playground opens and shows in a real browser: traces, files, what is stored, and the workbench."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import inference
from inference.backends.table import load
from tests.doubles.serving import scripted, serving
from tests.playground.conftest import NUMBERS, Opened, Visiting, choose_file, held, press, write_number

pytestmark = pytest.mark.browser

NEXT = "<|end|><|start|>assistant"
GREETING = "<|channel|>final<|message|>Hello.<|return|>"
HELLO = f"<|channel|>analysis<|message|>Be kind.{NEXT}<|channel|>final<|message|>Hello.<|return|>"
# A channel that Harmony does not know, and a type that the library takes for a recipient.
SLIPS = f"<|channel|>opinion<|message|>Well.{NEXT}<|channel|>final json<|message|>Done.<|return|>"


# The newest step, with the times of a response whose prompt took a second, and its tokens another.
SLOW_PROMPT = """async () => {
  const { current, update } = await import("/web/chat/store.js");
  const times = { began: 1e12, first: 1e12 + 1000, ended: 1e12 + 2000 };
  const slow = (step) => ({ ...step, ...times, usage: { ...step.usage, output_tokens: 31 } });
  const alter = (node) => (node.steps ? { ...node, steps: node.steps.map(slow) } : node);
  const altered = (nodes) => Object.fromEntries(Object.entries(nodes).map(([id, node]) => [id, alter(node)]));
  update(current().id, (now) => ({ ...now, nodes: altered(now.nodes) }));
}"""


def test_an_answer_has_one_speed(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING))).page
    found.asked("Hi")
    page.evaluate(SLOW_PROMPT)
    page.get_by_text("31 tokens · 30 per second").wait_for()
    press(page, "Health")
    page.get_by_label("Your tokens per second: 30.0, at most 30.0").wait_for()
    speed = "async () => (await import('/web/lib/speed.js')).speedOf(31, 1, 2)"
    assert page.evaluate(speed) == 30  # the definition that the tokens have, for each generation


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


def test_the_library_s_error_is_shown(opened: Opened) -> None:
    page = (found := opened(scripted("<|channel|>final<|message|>One.<|end|>Two.<|return|>"))).page
    found.asked("Hi")
    page.locator(".row.differs", has_text="stops at token").wait_for()


@pytest.mark.chromium("Playwright sees no downloads in Firefox")
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
        press(page, "Close it")
        assert "Hello." in other.asked("Hi").inner_text()


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
  for (let at = 0; at < 100; at++) {
    list.scrollTop = (list.scrollHeight / 100) * at;
    await new Promise(requestAnimationFrame);
    const count = document.querySelectorAll(".row.tokens").length;
    if (count) shown++;
    rows = Math.max(rows, count);
  }
  return { shown, rows };
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


def test_the_workbench_runs_and_compares(opened: Opened) -> None:
    page = opened(inference.load("tiny")).page
    press(page, "Workbench")
    page.get_by_label("A request: JSON of any API").fill(
        "client.responses.create(\n    input='Who are you?',  # so\n    reasoning={'effort': 'low'},\n)"
    )
    press(page, "Show its prompt")
    page.locator(".strip .t.special").first.wait_for()
    prompt = page.get_by_label("The prompt; special tokens may be written out")
    assert "Who are you?" in prompt.input_value()
    assert "Reasoning: low" in prompt.input_value()
    write_number(page.get_by_label("Temperature").nth(1), "1.9")
    press(page, "Run both")
    page.get_by_text("Run B:").wait_for()
    assert page.locator(".strip").count() == 3
    page.locator(".strip").first.locator(".t").nth(5).click()
    assert page.locator(".strip .t.gone").count() > 10


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


def test_two_prompts_are_compared(opened: Opened) -> None:
    page = opened(inference.load("tiny")).page
    press(page, "Workbench")
    press(page, "Show its prompt")
    page.get_by_label("Run B has a prompt of its own").check()
    other = page.get_by_label("The prompt of Run B")
    other.fill(other.input_value().replace("What is 17 times 23?", "Who are you?"))
    write_number(page.get_by_label("Temperature").nth(1), "0")
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
    page = opened(scripted(GREETING)).page
    read = "async text => (await import('/web/workbench/parse.js')).parseRequest(text)"
    assert page.evaluate(read, text) == {"input": 'a "b" c'}


CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
DONE = "<|channel|>final<|message|>It is seven.<|return|>"
MORE = "<|channel|>final<|message|>And more.<|return|>"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}

# Drops text files on the page, as a file manager does.
DROP = """(files) => {
  const data = new DataTransfer();
  for (const [name, text] of files) data.items.add(new File([text], name));
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
        other = answered(url)  # another link in the same tab
        found.page.evaluate("hash => { location.hash = hash }", f"trace=v1/responses/{other}/trace")
        found.page.locator(".row.response", has_text=other).wait_for()


@pytest.mark.chromium("Playwright cannot allow Firefox to read the clipboard")
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


@pytest.mark.chromium("Playwright sees no downloads in Firefox")
def test_dropped_files_are_traces_conversations_or_attachments(opened: Opened) -> None:
    page = (found := opened(scripted(GREETING, GREETING, GREETING))).page
    id_ = answered(found.url)
    trace = httpx.get(f"{found.url}/responses/{id_}/trace").text
    page.evaluate(DROP, [["kept.json", trace]])
    page.locator(".row.response", has_text=id_).wait_for()
    press(page, "Close it")
    page.evaluate(DROP, [["notes.txt", "The albatross sleeps on the wing."]])
    page.locator(".files", has_text="notes.txt").wait_for()
    found.asked("Where does it sleep?")
    assert "albatross" in page.locator(".whole").inner_text()
    assert page.locator(".composer .files").count() == 0
    with page.expect_download() as saved:
        page.get_by_label("Export").click()
    conversation = json.loads(saved.value.path().read_text())
    conversation["conversation"] |= {"id": "imported", "title": "Imported"}
    page.evaluate(DROP, [["conversation.json", json.dumps(conversation)]])
    page.get_by_role("heading", name="Imported").wait_for()
    page.evaluate(DROP, [["data.json", '{"a": 1}']])  # some other JSON is a text
    page.locator(".files", has_text="data.json").wait_for()
    page.evaluate(DROP, [["image.bin", "\0\1"]])
    page.get_by_role("alert").get_by_text("image.bin is not a text file").wait_for()


def open_stored(page: Any, id_: str) -> None:
    press(page, "Open by id")
    page.get_by_label("Id of a response").fill(id_)
    page.keyboard.press("Enter")


def test_a_response_opens_with_all_before_it_and_continues(opened: Opened) -> None:
    page = (found := opened(scripted(HELLO, CALL, DONE, MORE))).page
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
        assert "And more." in found.asked("Go on", 3).inner_text()
        id_ = found.response_id()
        assert ask.get(f"responses/{id_}").json()["previous_response_id"] == last
        open_stored(page, last)  # a second time, it is the same conversation
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.locator(".list li").count() == 1


def test_a_running_response_is_read_on(opened: Opened) -> None:
    page = (found := opened(engine := held(NUMBERS))).page
    body = {"input": "Count", "background": True}
    id_ = httpx.post(f"{found.url}/responses", json=body).json()["id"]
    open_stored(page, id_)
    page.locator('.message.assistant[aria-busy="true"]', has_text="10 11 12").wait_for()
    engine.released = True
    page.locator(".answer", has_text="117 118 119").wait_for()
    assert found.answered().locator(".answer").inner_text().split() == [str(n) for n in range(120)]


def test_a_conversation_opens_and_grows(opened: Opened) -> None:
    page = (found := opened(scripted(HELLO, MORE, DONE))).page
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
    page = (found := opened(scripted(HELLO, MORE))).page
    body = {"messages": [{"role": "user", "content": "Greet me"}], "store": True}
    httpx.post(f"{found.url}/chat/completions", json=body).raise_for_status()
    press(page, "Open by id")
    page.get_by_role("dialog").get_by_text("Hello.").click()
    page.locator(".bubble", has_text="Greet me").wait_for()
    assert "And more." in found.asked("Go on", 2).inner_text()


def test_unknown_ids_are_explained(opened: Opened) -> None:
    page = (found := opened(scripted(HELLO))).page
    open_stored(page, "resp_none")
    page.get_by_role("alert").get_by_text("No response with id 'resp_none' is stored").wait_for()
    page.get_by_label("Id of a response").fill("something")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("An id begins with resp_, conv_ or chatcmpl-").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    found.ignore("404")
