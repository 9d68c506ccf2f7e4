"""Bodies become text, in processes with limits: HTML, Markdown, PDF, plain text. Others are refused."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.tools.calling import processes as children
from tests.doubles.tools.web_servers import pdf
from tests.doubles.waiting import until
from tools.browser.backends.local_files import read_document
from tools.browser.pages import processes
from tools.browser.pages.body import convert_body
from tools.browser.pages.charset import decode
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, PageBody, PageError
from tools.browser.pages.html_text import MAX_DEPTH, html_to_text
from tools.browser.pages.processes import workers
from tools.browser.pages.text import clean, find_lines, without_markers, wrap

PAGE = """<!doctype html><html><head><title> The  title </title><style>p {}</style></head><body>
<nav><a href="/home">Home</a> <a href="https://other.example/x">Other</a></nav>
<h1>A <em>heading</em></h1>
<p>One <b>bold</b> word, a <a href="#below">fragment</a>, <a href="mailto:a@b.c">mail</a>
and <a href="page.html?q=1">a page</a> and <a href="/home">home again</a>.</p>
<ul><li>first<li>second<ul><li>inner <code>x = 1</code></ul></ul>
<ol><li>one<li>two</ol>
<pre>def f():
    return 1</pre>
<table><tr><th>A<th>B<tr><td>1<td>2</table>
<blockquote><p>quoted</blockquote>
E = mc<sup>2</sup>, H<sub>2</sub>O<br>next <img src=i.png alt="a picture"><img src=spacer.gif>
<a href="/card"><div>Card</div><p>of two blocks</p></a>
<script>alert(1)</script><template>t</template><noscript>n</noscript>
</body></html>"""


def test_a_page_of_html_becomes_blocks_of_text_with_numbered_links() -> None:
    read = html_to_text(PAGE, "https://example.com/docs/index.html")
    assert read.title == "The title"
    assert read.text == (
        "【0†Home】 【1†Other†other.example】\n\n"
        "# A heading\n\n"
        "One bold word, a fragment, mail and 【2†a page】 and 【0†home again】.\n\n"
        "  * first\n  * second\n    * inner `x = 1`\n\n"
        "  1. one\n  2. two\n\n"
        "def f():\n    return 1\n\n"
        "A | B\n1 | 2\n\n"
        "> quoted\n\n"
        "E = mc^{2}, H_{2}O\nnext [Image 0: a picture] 【3†Card of two blocks】"
    )
    assert read.links == (
        "https://example.com/home",
        "https://other.example/x",
        "https://example.com/docs/page.html?q=1",
        "https://example.com/card",
    )


def test_a_table_whose_cells_hold_paragraphs_is_read_by_rows() -> None:
    html = """<table><thead><tr><th class=head><p>Operation</p></th><th><div><h3>Result</h3></div></th></tr>
    </thead><tbody><tr><td> <p><code>x or y</code></p> </td><td><p>if <em>x</em> is true</p></td></tr>
    <tr><td><p>one</p><p>two</p></td><td><ul><li>a<li>b</ul></td></tr></tbody></table>"""
    read = html_to_text(html, "https://example.com/")
    assert read.text.startswith("Operation | Result\n`x or y` | if x is true\n\none\n\ntwo\n")
    assert "  * a\n  * b" in read.text


def test_the_pages_base_address_and_list_numbers_are_used() -> None:
    html = '<head><base target=_top><base href="/docs/v2/"></head><a href="intro.html">Intro</a>'
    assert html_to_text(html, "https://example.com/app/").links == ("https://example.com/docs/v2/intro.html",)
    elsewhere = html_to_text('<base href="https://cdn.example/"><a href=a>A</a>', "https://example.com/")
    assert (elsewhere.text, elsewhere.links) == ("【0†A†cdn.example】", ("https://cdn.example/a",))
    broken = html_to_text('<base href="javascript:1"><a href=a>A</a>', "https://example.com/x/")
    assert broken.links == ("https://example.com/x/a",)
    lists = "<ol start=5><li>five<li value=9>nine<li>ten</ol><ol start=x><li>one</ol>"
    counted = html_to_text(lists, "https://e.com")
    assert counted.text == "  5. five\n  9. nine\n  10. ten\n\n  1. one"


EMPTY = "<h1><img src=logo></h1><p>Welcome.</p><ul><li><img src=icon></li></ul><p>On.</p><ol><li></ol>End"
UNSEEN = (
    "<p>seen<p hidden>one<p style='color:red; display : none'>two<p style=visibility:hidden>three"
    "<!-- four --><svg><text>five</text></svg><p>also\u200b se\U000e0041en\u202e"
)
NOWHERE = ("", "javascript:x", "data:text/html,x", "tel:1", "ftp://a/b", "http://[bad/", "#a", "file:///x")
LAYOUT = "<table><tr><td><div><h1>Layout</h1><p>One.</p><p>Two.</p></div></td></tr></table>"
TEXTS = {
    "a table for the layout has no rows": (LAYOUT, "# Layout\n\nOne.\n\nTwo."),
    "gaps": ("<table><tr><td><td>b<td><p></p><tr><td><p>a</p><td><td>c</table>", "| b |\na | | c"),
    "an empty heading or item does not mark the next line": (EMPTY, "Welcome.\n\nOn.\n\nEnd"),
    "a heading in a link": ("<a href=/x><h2>News</h2></a><p>Text", "## 【0†News】\n\nText"),
    "what a reader cannot see is not shown to the model": (UNSEEN, "seen\n\nalso seen"),
    "no page forges markers": ("<p>【0†fake】 <a href=/x>a†b【1】</a>", "〖0†fake〗 【0†a‡b〖1〗】"),
    "links to no page are text": ("".join(f'<a href="{each}">t</a>' for each in NOWHERE), "t" * len(NOWHERE)),
}


@pytest.mark.parametrize("case", TEXTS)
def test_html_is_shown_as_the_model_should_read_it(case: str) -> None:
    html, text = TEXTS[case]
    assert html_to_text(html, "https://a.example/").text == text


def test_broken_html_is_not_an_error() -> None:
    for tag in ("", "\x00", "<", "<html>", "<title>", "<a href", "\ud800", "<p><p>", "<table><a href=x>"):
        html_to_text(tag, "https://a.example/")
    html_to_text("<table><td><p><table><td><div>a", "https://a.example/")


KOI8 = "<?xml version='1.0' encoding='koi8-r'?>мир"
RUSSIAN = "это русский текст без всякой пометки о том, как он записан"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("grüß".encode(), "", "grüß"),
        ("grüß".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grüß"),
        ("<meta charset=shift_jis>東京".encode("shift_jis"), "text/html", "<meta charset=shift_jis>東京"),
        (KOI8.encode("koi8-r"), "", KOI8),
        ("\ufeffmark".encode(), "text/plain; charset=ascii", "mark"),
        ("two".encode("utf-16"), "", "two"),
        ("“quote”".encode("cp1252"), "text/plain; charset=latin1", "“quote”"),
        *(("é".encode(), f"text/plain; charset={odd}", "é") for odd in ("rot13", "unicode_escape", "odd")),
        (b"\xff\xfe\xfa\xfb\x80", "text/plain; charset=utf-8", ""),
        (RUSSIAN.encode("cp1251"), "", RUSSIAN),
    ],
)
def test_charsets_by_mark_header_declaration_or_guess(body: bytes, content_type: str, text: str) -> None:
    assert decode(body, content_type).startswith(text)


async def read(
    data: bytes, content_type: str = "text/html", *, cut: bool = False, view_source: bool = False
) -> Document:
    return await convert(PageBody("https://a.example/x", content_type, data, cut), view_source=view_source)


async def test_a_pdf_is_read_page_by_page() -> None:
    document = await read(pdf("The first page", "The second page"), "application/pdf")
    assert document.title == "A paper"
    assert document.text == "# Page 1\n\nThe first page\n\n# Page 2\n\nThe second page"


@pytest.mark.parametrize(
    ("data", "content_type", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png", "image/png"),
        *(
            (b"PK\x03\x04\0\0\0\0", kind, "no whole archive")
            for kind in ("application/octet-stream", "", "text/plain")
        ),
        (b"zip", "application/zip", "application/zip"),
        (b"%PDF-1.4 broken", "application/pdf", "could not be read"),
        (pdf(""), "application/pdf", "no text"),
    ],
)
async def test_a_body_without_text_is_refused_in_words(data: bytes, content_type: str, words: str) -> None:
    with pytest.raises(PageError, match=words):
        await read(data, content_type)


async def test_a_page_that_was_cut_or_that_scripts_write_has_a_note() -> None:
    page = b"<title>App</title><div id=root></div><script>write('hello')</script>"
    document = await read(page, "text/html")
    assert (document.title, document.text) == ("App", "")
    assert "scripts" in document.note
    assert (await read(b"<p>Hello", "text/html")).note == ""
    assert "first part" in (await read(b"<p>x", "text/html", cut=True)).note
    assert "first part" in (await read(b"x" * 3_000_000, "text/plain")).note


async def test_a_pdf_that_was_cut_or_whose_source_is_requested_is_refused() -> None:
    for setting, words in (({"cut": True}, "too large"), ({"view_source": True}, "no source")):
        with pytest.raises(PageError, match=words):
            await read(pdf("x"), "application/pdf", **setting)


async def test_undeclared_types_are_detected_and_a_source_is_text_as_sent() -> None:
    assert (await read(b"<!DOCTYPE html><title>t</title><p>x", "")).title == "t"
    assert (await read(pdf("seen"), "application/octet-stream")).text.endswith("seen")
    assert (await read(b'{"a": 1}', "application/problem+json")).text == '{"a": 1}'
    assert (await read(b"<p>x", "text/plain")).text == "<p>x"
    source = await read(PAGE.encode(), "text/html", view_source=True)
    assert (source.text, source.links) == (PAGE, ())


async def test_markdown_keeps_its_form_and_gets_numbered_links() -> None:
    code = "```\n[not](a.link)\n```\n![i](i.png)\n"
    text = f"# Title\n\nSee [the guide](guide.md#part) or <https://b.example/>.\n\n{code}"
    document = await read(text.encode(), "text/markdown")
    assert document.title == "Title"
    assert document.text == (
        "# Title\n\nSee 【0†the guide】 or 【1†https://b.example/†b.example】.\n\n"
        "```\n[not](a.link)\n```\n![i](i.png)"
    )
    assert document.links == ("https://a.example/guide.md#part", "https://b.example/")


def test_lines_are_wrapped_without_losing_any_character() -> None:
    text = "word " * 100 + "\n\n" + "x" * 10_000 + "\n" + "東" * 200
    lines = wrap(text)
    assert max(map(len, lines)) <= 80
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_matches_are_found_over_line_ends_and_without_regard_to_case() -> None:
    lines = ["The Quick", "brown 【1†fox", "trot†a.example】 here", "quick   BROWN", ""]
    plain = without_markers(lines)
    assert plain == ["The Quick", "brown fox", "trot here", "quick   BROWN", ""]
    assert find_lines(plain, "quick brown") == [0, 3]
    assert find_lines(plain, "fox trot HERE") == [1]
    assert find_lines(plain, "(") == find_lines(plain, "  ") == []
    assert find_lines(["", "a well-", "known", "", "x" * 80, "xyz", "İstanbul"], "Well-known") == [1]
    assert find_lines(["", "a", "x" * 80, "xyz", "İstanbul"], "xxxyz") == [2]
    assert find_lines(["İİ", "", "İstanbul  b"], "istanbul") == []
    assert find_lines(["İİ", "", "İstanbul  b"], "İSTANBUL b") == [2]


def test_line_breaks_of_every_kind_end_lines_and_controls_vanish() -> None:
    assert clean("a\r\nb\rc\u2028d\x0be\x00f\x1bg\th") == "a\nb\nc\nd\nefg\th"


ORDINARY = b"<title>A page</title><p>Some words <a href=/x>and a link</a>."
ATTRIBUTES = b"<a " + b" ".join(b"a%d=1" % number for number in range(60_000)) + b">"
PARAGRAPHS = b"<p>x" * 200_000


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    workers("markup").close()
    yield
    workers("markup").close()


def program_with(changed: dict[str, str], folder: Path) -> tuple[str, ...]:
    """The command of the same program with other constants."""
    program = Path(processes.__file__).with_name("worker.py").read_text()
    root = {"_ROOT = Path(__file__).resolve().parents[3]": f"_ROOT = Path({os.getcwd()!r})"}
    for line, other in (changed | root).items():
        assert line in program
        program = program.replace(line, other)
    (folder / "worker.py").write_text(program)
    return (*processes._COMMAND[:-1], str(folder / "worker.py"))


def instead(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(processes, "_COMMAND", (processes._COMMAND[0], "-c", program))


def free() -> list[int]:
    return [worker.process.pid for worker in workers("markup")._free]


async def test_one_process_converts_many_pages_as_this_process_would() -> None:
    seen = [await read(ORDINARY) for _ in range(3)]
    assert seen == [convert_body(PageBody("https://a.example/x", "text/html", ORDINARY), "html")] * 3
    assert len(free()) == 1
    assert (await read("# Ü【1】 \ud800".encode("utf-8", "replace"), "text/markdown")).title == "Ü〖1〗 ?"


@pytest.mark.parametrize("depth", [40_000, 300_000])
@pytest.mark.parametrize("closed", [b"", b"</div>"])
async def test_a_page_that_is_too_deep_is_refused_without_parsing(depth: int, closed: bytes) -> None:
    with pytest.raises(PageError, match="nested too deeply"):
        await read(b"<div>" * depth + closed * depth)
    assert (await read(ORDINARY)).title == "A page"


async def test_many_open_paragraphs_are_not_deep() -> None:
    document = await read(b"<p>some <br>words" * (MAX_DEPTH + 1))
    assert document.text.count("words") == MAX_DEPTH + 1


@pytest.mark.parametrize(
    ("page", "seconds", "megabytes"),
    [(ATTRIBUTES, 0.05, 1024), (PARAGRAPHS, 20.0, 100)],
    ids=["time", "memory"],
)
async def test_a_page_beyond_its_bounds_ends_its_process_alone(
    page: bytes, seconds: float, megabytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = {
        "PAGE_SECONDS, SECONDS_PER_BYTE = 1.0, 1.2e-6": f"PAGE_SECONDS, SECONDS_PER_BYTE = {seconds}, 0",
        "MAX_MEMORY, MAX_PDF_MEMORY = 1024**3": f"MAX_MEMORY, MAX_PDF_MEMORY = {megabytes} * 1024**2",
    }
    monkeypatch.setattr(processes, "_COMMAND", program_with(changed, tmp_path))
    before = children()
    with pytest.raises(PageError, match="too much time or memory"):
        await read(page)
    assert children() == before
    assert (await read(ORDINARY)).title == "A page"


async def test_a_process_that_has_ended_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = program_with({"IDLE_SECONDS = 300.0": "IDLE_SECONDS = 1.0"}, tmp_path)
    monkeypatch.setattr(processes, "_COMMAND", command)
    assert (await read(ORDINARY)).title == "A page"
    [pid] = free()
    await asyncio.sleep(2.5)
    assert (await read(ORDINARY)).title == "A page"
    assert free() != [pid]


@pytest.mark.parametrize(
    "answer",
    [
        *("(2**40).to_bytes(8)", "(3).to_bytes(8) + b'[1]'", "(3).to_bytes(8) + b'{x}'", "b'12'"),
        "(13).to_bytes(8) + b'{\"links\": 3}'.ljust(13)",
    ],
)
async def test_no_answer_of_a_process_is_trusted(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, f"import sys; sys.stdin.buffer.read(10); sys.stdout.buffer.write({answer})")
    with pytest.raises(PageError):
        await read(ORDINARY)


async def test_a_process_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(processes.SECONDS, "markup", 0.3)
    instead(monkeypatch, "import time; time.sleep(600)")
    before = children()
    for size in (10, 1_000_000):  # the larger one does not fit into the pipe
        with pytest.raises(PageError, match="too much time"):
            await read(b"x" * size)
    assert children() == before


async def test_a_process_is_replaced_after_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(processes.MAX_BODIES, "markup", 2)
    await read(ORDINARY)
    [first] = free()
    await read(ORDINARY)
    assert free() == []
    await read(ORDINARY)
    assert free() != [first]


def test_files_of_a_folder_are_read_there_too(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(ORDINARY)
    (tmp_path / "deep.html").write_bytes(b"<div>" * 40_000)
    assert read_document(tmp_path, "a.html", view_source=False).title == "A page"
    assert free()
    with pytest.raises(PageError, match="nested too deeply"):
        read_document(tmp_path, "deep.html", view_source=False)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_pdf_that_takes_too_long_is_abandoned_and_its_process_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cancelled: bool
) -> None:
    started = tmp_path / "pid"
    note = f"open({str(started)!r}, 'w').write(str(os.getpid()))"
    instead(monkeypatch, f"import os, time; {note}; time.sleep(60)")
    monkeypatch.setitem(processes.SECONDS, "pdf", 60.0 if cancelled else 1.0)
    work = asyncio.create_task(read(pdf("x"), "application/pdf"))

    await until(lambda: started.exists() and bool(started.read_text()))
    if cancelled:
        work.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else PageError):
        await work
    pid = int(started.read_text())
    await until(lambda: pid not in children())
