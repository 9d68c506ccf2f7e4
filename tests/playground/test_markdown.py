"""What a model writes as Markdown, in a real browser: formulas, task lists, tables, footnotes."""

from typing import Any

import pytest

from tests.doubles.serving import scripted
from tests.playground.conftest import Opened

pytestmark = pytest.mark.browser


def shown(opened: Opened, text: str, **look: Any) -> Any:
    found = opened(scripted(f"<|channel|>final<|message|>{text}<|return|>"), **look)
    return found.asked("Show me").locator(".markdown")


FORMULAS = r"""Let \(e^{i\pi} = -1\) and $$\int_0^1 x^2\,dx = \frac{1}{3}$$ hold.

\[
\begin{pmatrix} a & b \\ c & d \end{pmatrix}
\]

$$
\sum_{k=1}^{n} k = \frac{n(n+1)}{2}
$$

A price of $5 and $6, `\(code\)`, and \(\unknowncommand\) and \(\href{javascript:window.hit=1}{x}\)."""


def test_formulas_are_drawn_once_there_is_one(opened: Opened) -> None:
    text = shown(opened, FORMULAS)
    text.locator(".katex").nth(5).wait_for()
    sources = [each.text_content() for each in text.locator("annotation").all()]
    assert sources[0] == r"e^{i\pi} = -1"
    assert sources[1] == r"\int_0^1 x^2\,dx = \frac{1}{3}"
    assert sources[2].startswith(r"\begin{pmatrix}")
    assert sources[3].startswith(r"\sum_{k=1}^{n}")
    assert text.locator("[data-math=block]").count() == 3
    assert "A price of $5 and $6" in text.inner_text()
    assert text.locator("code").inner_text() == r"\(code\)"
    assert text.locator("[data-math] a").count() == 0  # KaTeX trusts no link
    fonts = "async () => { await document.fonts.ready; return document.fonts.check('16px KaTeX_Main'); }"
    assert text.page.evaluate(fonts)


def test_a_task_list_has_its_boxes(opened: Opened) -> None:
    text = shown(opened, "A price of $5\n\n- [x] done\n- [ ] open\n\n1. one\n2. two")
    assert [box.is_checked() for box in text.get_by_role("checkbox").all()] == [True, False]
    assert text.get_by_label("To do").is_disabled()
    assert text.locator("li").nth(0).evaluate("item => getComputedStyle(item).listStyleType") == "none"
    assert text.locator("li").nth(2).evaluate("item => getComputedStyle(item).listStyleType") == "decimal"
    loaded = "performance.getEntriesByType('resource').filter(each => each.name.includes('katex')).length"
    assert text.page.evaluate(loaded) == 0  # there is no formula


TABLE = """| Name of the instrument | Reading | Side |
|:---|---:|:---:|
| Barometer, on the northern wall of the harbourmaster's office | 1013.25 | left |
| Thermometer | 7.5 | right |
"""


@pytest.mark.parametrize("width", [1400, 390])
def test_a_table_is_aligned_and_breaks_no_word_of_a_header(opened: Opened, width: int) -> None:
    text = shown(opened, TABLE, viewport={"width": width, "height": 800})
    cells = [cell.evaluate("cell => getComputedStyle(cell).textAlign") for cell in text.locator("td").all()]
    assert cells[:3] == ["left", "right", "center"]
    lines = "head => Math.round(head.clientHeight / parseFloat(getComputedStyle(head).lineHeight))"
    assert [head.evaluate(lines) for head in text.locator("th").all()] == [1, 1, 1]
    beyond = "(thread => thread.scrollWidth - thread.clientWidth)(document.querySelector('.thread'))"
    assert text.page.evaluate(beyond) == 0  # the table scrolls, and nothing else


NOTES = """Tides turn[^moon], twice a day[^2]. An [^unknown] one stays, and `[^moon]` is code.

[^2]: About every
  twelve hours.
[^moon]: The **moon** draws them.
[^unused]: Never shown.
"""


def test_footnotes_are_numbered_in_the_order_of_the_text(opened: Opened) -> None:
    text = shown(opened, NOTES)
    assert [each.inner_text() for each in text.locator("sup a").all()] == ["1", "2"]
    notes = text.get_by_label("Footnotes").locator("li")
    assert [each.inner_text().split() for each in notes.all()] == [
        ["The", "moon", "draws", "them.", "↩"],
        ["About", "every", "twelve", "hours.", "↩"],
    ]
    assert "[^unknown]" in text.inner_text()
    assert "Never shown" not in text.inner_text()
    address = text.page.url
    text.locator("sup a").first.click()
    assert notes.first.evaluate("note => note === document.activeElement")
    notes.first.get_by_label("Back to the text").click()
    assert text.locator("sup a").first.evaluate("link => link === document.activeElement")
    assert text.page.url == address


def test_what_cannot_be_loaded_is_shown_as_it_was_written(opened: Opened) -> None:
    found = opened(scripted(f"<|channel|>final<|message|>{FORMULAS}\n\n{DIAGRAM}<|return|>"))
    found.page.route("**/vendor/katex/**", lambda route: route.abort())
    found.page.route("**/vendor/mermaid/**", lambda route: route.abort())
    text = found.asked("Show me").locator(".markdown")
    text.get_by_text(r"Let \(e^{i\pi} = -1\) and").wait_for()
    text.get_by_text("Mermaid could not be loaded").first.wait_for()
    assert "Moon -- draws --> Water" in text.locator(".code").first.inner_text()
    found.ignore("ERR_FAILED")  # the browser's own


DIAGRAM = """```mermaid
flowchart LR
  Moon -- draws --> Water
  Water --> Tide{High?}
  click Moon "javascript:parent.hit=1"
```

```mermaid
no diagram at all
```
"""


def test_a_diagram_is_drawn_in_a_frame_without_an_origin(opened: Opened) -> None:
    text = shown(opened, DIAGRAM)
    page, frame = text.page, text.frame_locator("iframe")
    text.get_by_text("This diagram cannot be drawn").wait_for()
    frame.locator("svg").get_by_text("Moon").wait_for()
    page.wait_for_function("() => parseFloat(document.querySelector('.diagram iframe').style.height) > 40")
    assert text.locator("iframe").count() == 1
    assert frame.locator("body").evaluate("() => origin") == "null"
    assert frame.locator("a[href^=javascript]").count() == 0
    text.get_by_role("button", name="Source").click()
    assert "Moon -- draws --> Water" in text.locator(".diagram .code").inner_text()
