"""HTML is converted in processes with limits: hostile pages end there, and ordinary ones lose no time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.tools.calling import processes
from tools.browser.backends.local_files import read_document
from tools.browser.pages import html
from tools.browser.pages.body import PageBody, convert_text
from tools.browser.pages.convert import convert
from tools.browser.pages.depth import MAX_DEPTH
from tools.browser.pages.document import Document
from tools.browser.pages.errors import PageError

PAGE = b"<title>A page</title><p>Some words <a href=/x>and a link</a>."
ATTRIBUTES = b"<a " + b" ".join(b"a%d=1" % number for number in range(60_000)) + b">"
BOLD = b"".join(b"<b id=%d>" % number for number in range(4_000)) + b"<p>x" * 40_000


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """Each test begins and ends without processes."""
    html._workers().close()
    yield
    html._workers().close()


async def read(data: bytes, kind: str = "text/html") -> Document:
    return await convert(PageBody("https://a.example/", kind, data))


def program_with(changed: dict[str, str], folder: Path) -> tuple[str, ...]:
    """The command of the same program with other constants."""
    program = Path(html.__file__).with_name("html_worker.py").read_text()
    root = {"_ROOT = Path(__file__).resolve().parents[3]": f"_ROOT = Path({os.getcwd()!r})"}
    for line, other in (changed | root).items():
        assert line in program
        program = program.replace(line, other)
    (folder / "worker.py").write_text(program)
    return (*html._COMMAND[:-1], str(folder / "worker.py"))


def workers() -> list[int]:
    return [worker._process.pid for worker in html._workers()._free]


async def test_one_process_converts_many_pages_as_this_process_would() -> None:
    seen = [await read(PAGE) for _ in range(3)]
    assert seen == [convert_text(PageBody("https://a.example/", "text/html", PAGE), "html")] * 3
    assert len(workers()) == 1
    assert (await read("# Ü【1】 \ud800".encode("utf-8", "replace"), "text/markdown")).title == "Ü〖1〗 ?"


@pytest.mark.parametrize("depth", [40_000, 300_000])
@pytest.mark.parametrize("closed", [b"", b"</div>"])
async def test_a_page_that_is_too_deep_is_refused_without_parsing(depth: int, closed: bytes) -> None:
    with pytest.raises(PageError, match="nested too deeply"):
        await read(b"<div>" * depth + closed * depth)
    assert (await read(PAGE)).title == "A page"


async def test_many_open_paragraphs_are_not_deep() -> None:
    document = await read(b"<p>some <br>words" * (MAX_DEPTH + 1))
    assert document.text.count("words") == MAX_DEPTH + 1


@pytest.mark.parametrize("page", [ATTRIBUTES, BOLD], ids=["time", "memory"])
async def test_a_page_beyond_its_bounds_ends_its_process_alone(
    page: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With small bounds, so that the test itself is bounded."""
    changed = {
        "PAGE_SECONDS, SECONDS_PER_BYTE = 1.0, 1.2e-6": "PAGE_SECONDS, SECONDS_PER_BYTE = 0.2, 0",
        "MAX_MEMORY = 1024**3": "MAX_MEMORY = 300 * 1024**2",
    }
    monkeypatch.setattr(html, "_COMMAND", program_with(changed, tmp_path))
    before = processes()
    with pytest.raises(PageError, match="too much time or memory"):
        await read(page)
    assert processes() == before
    assert (await read(PAGE)).title == "A page"


async def test_hostile_pages_leave_the_other_threads_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = {"PAGE_SECONDS, SECONDS_PER_BYTE = 1.0, 1.2e-6": "PAGE_SECONDS, SECONDS_PER_BYTE = 0.4, 0"}
    monkeypatch.setattr(html, "_COMMAND", program_with(changed, tmp_path))
    hostile = [asyncio.create_task(read(ATTRIBUTES * 2)) for _ in range(7)]
    began = time.monotonic()
    for _ in range(20):
        await asyncio.to_thread(time.sleep, 0)
    assert time.monotonic() - began < 5.0
    ended = await asyncio.gather(*hostile, return_exceptions=True)
    assert all(isinstance(each, Document | PageError) for each in ended)


async def test_a_process_that_ended_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = program_with({"IDLE_SECONDS = 300.0": "IDLE_SECONDS = 0.3"}, tmp_path)
    monkeypatch.setattr(html, "_COMMAND", command)
    assert (await read(PAGE)).title == "A page"
    [pid] = workers()
    await asyncio.sleep(1.5)
    assert (await read(PAGE)).title == "A page"
    assert workers() != [pid]


@pytest.mark.parametrize(
    "answer",
    [
        "(2**40).to_bytes(8)",
        "(3).to_bytes(8) + b'[1]'",
        "(3).to_bytes(8) + b'{x}'",
        "(13).to_bytes(8) + b'{\"links\": 3}'.ljust(13)",
        "b'12'",
    ],
)
async def test_nothing_that_a_process_answers_is_trusted(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"import sys; sys.stdin.buffer.read(10); sys.stdout.buffer.write({answer})"
    monkeypatch.setattr(html, "_COMMAND", (*html._COMMAND[:1], "-c", program))
    with pytest.raises(PageError):
        await read(PAGE)


async def test_a_process_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "SECONDS", 0.3)
    monkeypatch.setattr(html, "_COMMAND", (*html._COMMAND[:1], "-c", "import time; time.sleep(600)"))
    before = processes()
    for size in (10, 1_000_000):  # the larger one does not fit into the pipe
        with pytest.raises(PageError, match="too much time"):
            await read(b"x" * size)
    assert processes() == before


async def test_a_process_is_replaced_after_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_PAGES", 2)
    await read(PAGE)
    [first] = workers()
    await read(PAGE)
    assert workers() == []
    await read(PAGE)
    assert workers() != [first]


async def test_preparing_starts_one_process() -> None:
    for _ in range(3):
        html.prepare()
    await read(PAGE)
    assert len(workers()) == 1


def test_files_of_a_folder_are_read_there_too(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(PAGE)
    (tmp_path / "deep.html").write_bytes(b"<div>" * 40_000)
    assert read_document(tmp_path, "a.html", view_source=False).title == "A page"
    assert workers()
    with pytest.raises(PageError, match="nested too deeply"):
        read_document(tmp_path, "deep.html", view_source=False)
