"""What a model writes runs nothing in the page and loads nothing, in a real browser."""

import json
from typing import Any

import httpx
import pytest

from tests.doubles.serving import scripted, serving
from tests.playground.conftest import Opened, Visiting, choose_file

pytestmark = pytest.mark.browser

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
    assert page.url == found.base


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
