"""The playground behind a prefix, with keys, renamed events, MCP servers, and what a model writes, inert."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.apis.mcp_asking import ANSWER, call
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.echo_server import Seen, watched
from tests.playground.conftest import Opened, Visit, Visiting, answers_over, choose_file, press
from tests.tools.python.conftest import sandbox_of_servers

pytestmark = pytest.mark.browser

THINKS = "<|channel|>analysis<|message|>Be kind.<|end|><|start|>assistant"
HELLO = f"{THINKS}<|channel|>final<|message|>Hello.<|return|>"


def behind_prefix(app: Any) -> Any:
    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            if not scope["path"].startswith("/box/"):
                await JSONResponse({}, 502)(scope, receive, send)
                return
            path = scope["path"].removeprefix("/box")
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return proxy


KEYED = Settings(api_key=("sesame",))


def give_key(page: Any, key: str = "sesame") -> None:
    page.get_by_label("The server requires a key").fill(key)
    press(page, "Use this key")


def come_in(page: Any) -> None:
    give_key(page)
    page.get_by_text("Chat with scripted").wait_for()


def test_behind_a_path_prefix(visit: Visiting) -> None:
    with serving(scripted(HELLO, HELLO), wrap=behind_prefix) as url:
        page = (found := visit(url.removesuffix("/v1") + "/box/v1")).open()
        assert "Hello." in found.asked("Hi").inner_text()
        page.locator(".row.same").wait_for()
        answers_over(page, "WebSocket")
        assert "Hello." in found.asked("Hi again", 2).inner_text()


def test_with_a_key_that_stays_in_the_tab(opened: Opened) -> None:
    page = (found := opened(scripted(HELLO), KEYED)).page
    page.get_by_role("status").get_by_text("Enter a key of this server").wait_for()
    page.wait_for_function("document.activeElement.type === 'password'")
    give_key(page, "wrong")
    page.get_by_role("status").get_by_text("This API key is not one of this server's").wait_for()
    come_in(page)
    assert "Hello." in found.asked("Hi").inner_text()
    assert "sesame" not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    assert "sesame" in page.evaluate("JSON.stringify(sessionStorage)")
    press(page, "Setup")
    press(page, "Forget the key")
    page.get_by_label("The server requires a key").wait_for()
    assert "sesame" not in page.evaluate("JSON.stringify(sessionStorage)")
    found.ignore("401")


def test_a_linked_trace_opens_once_the_key_is_given(visit: Visiting) -> None:
    with serving(scripted(HELLO), KEYED) as url:
        headers = {"authorization": "Bearer sesame"}
        id_ = httpx.post(f"{url}/responses", json={"input": "Hi"}, headers=headers).json()["id"]
        found = visit(url)
        found.page.goto(f"{found.base}#trace=v1/responses/{id_}/trace")
        give_key(found.page)
        found.page.locator(".row.response", has_text=id_).wait_for()
        assert found.page.get_by_role("alert").count() == 0
        found.ignore("401")


@pytest.mark.chromium("Playwright sees no WebSockets in Firefox")
def test_with_a_key_over_websocket(opened: Opened) -> None:
    page = (found := opened(scripted(HELLO, HELLO), KEYED)).page
    come_in(page)
    answers_over(page, "WebSocket")
    with page.expect_websocket() as socket:
        found.ask("Hi")
    assert "sesame" not in socket.value.url
    assert "Hello." in found.answered().inner_text()
    found.ignore("401")


def test_a_key_that_is_replaced_on_the_server_is_asked_for_again(visit: Visiting) -> None:
    with serving(scripted(HELLO), KEYED) as url:
        page = (found := visit(url)).open()
        come_in(page)
    with serving(scripted(HELLO), Settings(api_key=("another",)), port=httpx.URL(url).port or 0):
        found.ask("Hi")
        give_key(page, "another")
        page.get_by_label("Regenerate").click()
        page.locator(".answer", has_text="Hello.").wait_for()
    found.ignore("401")


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.chromium("Playwright sees no downloads in Firefox")
def test_files_that_python_wrote_are_saved_with_the_key(opened: Opened) -> None:
    code = "open('/mnt/data/tides \u00e4.csv', 'w').write('a,b')"
    python = f"<|channel|>analysis to=python code<|message|>{code}<|call|>"
    page = (found := opened(scripted(python, HELLO), replace(KEYED, python="bubblewrap"))).page
    come_in(page)
    press(page, "Setup")
    page.get_by_label("Python").check()
    found.asked("Write it")
    with page.expect_download() as saved:  # a link would carry no key
        page.get_by_role("button", name="tides \u00e4.csv").click()  # its name goes on with the size
    assert saved.value.suggested_filename == "tides \u00e4.csv"
    assert saved.value.path().read_text() == "a,b"
    page.reload()
    page.evaluate(OLDER)
    page.reload()
    press(page, "Files that it wrote")
    page.get_by_role("button", name="tides \u00e4.csv").wait_for()
    found.ignore("401")


# Makes the answers that the browser keeps an hour older, so that their files are not listed by themselves.
OLDER = """() => {
  for (const name of Object.keys(localStorage).filter((each) => each.includes("conversation:"))) {
    const kept = JSON.parse(localStorage[name]);
    for (const node of Object.values(kept.nodes)) {
      const times = (node.steps ?? []).flatMap((step) => Object.values(step.times));
      for (const time of times) time.ended -= 3600_000;
    }
    localStorage[name] = JSON.stringify(kept);
  }
}"""


def test_with_the_event_names_of_open_responses(opened: Opened) -> None:
    page = (found := opened(scripted(HELLO), Settings(event_names="open-responses"))).page
    answer = found.asked("Hi")
    answer.get_by_text("Reasoning").click()
    assert page.locator(".fold.analysis .plain").inner_text() == "Be kind."


def test_a_tool_that_the_server_lacks_is_explained_where_it_is_switched_on(opened: Opened) -> None:
    found = opened(scripted(HELLO), Settings(browser="off", python="unsafe-local", debug_api="off"))
    page = found.page
    press(page, "Setup")
    page.get_by_label("Python", exact=True).check()
    page.get_by_label("Browser", exact=True).check()
    page.get_by_text("The browser is off. Start with --browser").wait_for()
    assert page.locator(".setup .bad").count() == 1, "python is on"
    page.get_by_label("Browser", exact=True).uncheck()
    page.locator(".setup .bad").wait_for(state="detached")
    found.ignore("status of 400")


STARTERS = {
    "Who are you?": "demonstration model",
    "What is 17 times 23?": "391",
    "What is the weather in Paris?": "18",
    "What is the capital of France?": "Paris",
    "Tell me a joke.": "To get to the final side.",
}


@pytest.mark.usefixtures("sandboxed")
def test_each_starter_of_the_embedded_model_works(opened: Opened) -> None:
    """Each as a user has it: with the model's own sampling, and with Python where it is offered."""
    page = (found := opened(inference.load("tiny"), Settings(model="tiny", python=sandbox_of_servers()))).page
    page.locator(".chips").get_by_role("button", name="Python").wait_for()
    assert [each.inner_text().split("?")[0] for each in page.locator(".ideas button").all()] == [
        text.split("?")[0] for text in STARTERS
    ]
    for text, answer in STARTERS.items():
        press(page, "New conversation")
        page.locator(".ideas button", has_text=text).click()
        page.locator(".answer", has_text=answer).wait_for()
        assert found.answered().locator(".error").count() == 0


def test_a_request_beyond_the_embedded_model_has_a_note(opened: Opened) -> None:
    page = opened(inference.load("tiny"), Settings(model="tiny")).page
    assert page.locator(".ideas button", has_text="17 times 23").count() == 0  # there is no Python
    message, note = page.get_by_label("Message", exact=True), page.get_by_role("note")
    message.fill("Short.")
    assert note.count() == 0
    message.fill("long " * 200)
    note.get_by_text("reads long texts badly").wait_for()
    press(page, "Serve a real model")
    assert "gpt-oss-20b" in page.get_by_role("dialog", name="Serve a real model").inner_text()


ATTACKS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "![](https://evil.example/pixel.png)",
    "<svg/onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "[click](javascript:window.hit=1)",
    "[click](data:text/html,<script>opener.hit=1</script>)",
    "<a href='java\nscript:window.hit=1'>a</a>",
    "<details open ontoggle=window.hit=1>x</details>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1></style></mglyph></table>",
    "<form action='https://evil.example'><button>go</button></form>",
    "<style>@import 'https://evil.example/a.css';</style>",
    "<link rel=stylesheet href='https://evil.example/a.css'>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<object data='https://evil.example/a.swf'></object>",
    "<video src='https://evil.example/a.mp4' autoplay onerror=window.hit=1></video>",
    "<div style='background:url(https://evil.example/a.png)'>x</div>",
    "```html\n<script>window.hit = 1</script>\n```",
    "<template><script>window.hit=1</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>",
]
HOSTILE = (
    "[...document.querySelectorAll('.message.assistant *')].filter(e =>"
    " ['SCRIPT','IFRAME','OBJECT','EMBED','FORM','STYLE','LINK','META','BASE','VIDEO'].includes(e.tagName)"
    " || (e.closest('.block') && e.tagName === 'IMG')"
    " || [...e.attributes].some(a => a.name.startsWith('on'))"
    " || /^\\s*(javascript|data):/i.test(e.getAttribute('href') ?? '')).length"
)


def test_a_corpus_of_attacks_renders_inert(opened: Opened) -> None:
    answers = [f"<|channel|>final<|message|>{attack}\n\nafter<|return|>" for attack in ATTACKS]
    page = (found := opened(scripted(*answers))).page
    for number, _ in enumerate(ATTACKS, 1):
        found.ask(f"Number {number}")
        found.answered(number)
    for link in page.locator(".message.assistant .block a", has_text="click").all():
        assert not link.get_attribute("href")
    assert page.evaluate("window.hit") is None
    assert page.evaluate(HOSTILE) == 0
    assert page.url.startswith(f"{found.base}c/")


def test_a_forged_trace_renders_inert(visit: Visiting, tmp_path: Any) -> None:
    evil = "<img src=x onerror=window.hit=1>"
    with serving(scripted(f"<|channel|>thoughts<|message|>{evil}<|return|>")) as url:
        answer = httpx.post(f"{url}/responses", json={"input": evil}).json()
        trace = httpx.get(f"{url}/responses/{answer['id']}/trace").json()
        trace["vocabulary"] = dict.fromkeys(trace["vocabulary"], evil)
        trace["responses"][0]["generations"][0]["slips"][0]["detail"] = evil
        (tmp_path / "t.json").write_text(json.dumps(trace))
        page = visit(url).open()
        choose_file(page, "Open a trace", tmp_path / "t.json")
        page.locator(".row.tokens").first.wait_for()
        page.evaluate("document.querySelector('.virtual').scrollTop = 1e9")
        page.locator(".slip-card").first.wait_for()
        assert page.evaluate("window.hit") is None
        assert page.locator(".whole img").count() == 0


@contextmanager
def with_server(visit: Visiting, *turns: str, asks: bool = False) -> Iterator[tuple[Visit, Seen]]:
    settings = Settings(allow_private_hosts=True)
    with watched() as (server, seen), serving(scripted(*turns), settings) as url:
        page = (found := visit(url)).open()
        press(page, "Setup")
        press(page, "Add a server")
        page.get_by_label("Label").fill("echoes")
        page.get_by_label("Address").fill(server)
        page.get_by_label("Ask me before each call").set_checked(asks)
        press(page, "Tokens")
        yield found, seen


def test_tools_are_listed_and_called(visit: Visiting) -> None:
    with with_server(visit, call("echo", text="seven bells"), ANSWER) as (found, seen):
        answer = found.asked("Say it")
        answer.get_by_text("Tools of echoes").click()
        assert "Says the same." in answer.locator(".hits").inner_text()
        answer.get_by_text("echoes: echo").click()
        assert '"text": "seven bells"' in answer.locator(".code").inner_text()
        assert answer.locator(".output").inner_text() == "seven bells"
        found.show_end()
        found.page.locator(".tool-card", has_text="echo").wait_for()
        assert seen.calls == 1


def test_a_call_waits_for_approval(visit: Visiting) -> None:
    turns = (call("echo", text="first"), ANSWER, call("echo", text="second"), ANSWER)
    with with_server(visit, *turns, asks=True) as (found, seen):
        page = found.page
        found.ask("Say it")
        group = page.get_by_role("group", name="May echoes run echo?")
        group.wait_for()
        assert '"text": "first"' in page.locator(".code").inner_text()
        assert seen.calls == 0
        group.get_by_role("button", name="Approve").click()
        page.get_by_text("Approved").wait_for()
        page.locator(".answer", has_text="Done.").wait_for()
        assert seen.calls == 1
        found.ask("Once more")
        group.wait_for()
        group.get_by_role("button", name="Deny").click()
        page.get_by_text("Denied").wait_for()
        page.locator(".answer", has_text="Done.").nth(1).wait_for()
        assert seen.calls == 1


def test_a_tool_that_fails_is_shown_with_its_error(visit: Visiting) -> None:
    with with_server(visit, call("fail", why="the sea is calm"), ANSWER) as (found, _):
        answer = found.asked("Try")
        answer.get_by_text("echoes: fail").click()
        assert "the sea is calm" in answer.locator(".output.bad").inner_text()


DEEP = {
    "list": "- " * 600 + "end",
    "quotes": "> " * 600 + "end",
    "numbers": "1. " * 600 + "end",
    "mixed": "> - 1. " * 200 + "end",
    "indented": "\n".join(f"{'  ' * depth}- level {depth}" for depth in range(600)) + " end",
    "emphasis": "*a **b " * 2_000 + "end",
    "links": "[" * 5_000 + "end" + "](x)" * 5_000,
}


def test_text_that_nests_without_end_leaves_the_page_in_place(opened: Opened) -> None:
    answers = [f"<|channel|>final<|message|>{text}<|return|>" for text in DEEP.values()]
    found = opened(scripted(*answers))
    for count, name in enumerate(DEEP, 1):
        assert "end" in found.asked(name, count).inner_text()
    found.page.reload()
    found.page.get_by_label("Message", exact=True).wait_for()
    assert found.page.locator(".message.assistant").count() == len(DEEP)
