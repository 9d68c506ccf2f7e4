"""Bodies are converted in processes with limits: hostile ones end there, and ordinary ones lose no time."""

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
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, PageBody, PageError
from tools.browser.pages.html_text import MAX_DEPTH
from tools.browser.pages.processes import workers

PAGE = b"<title>A page</title><p>Some words <a href=/x>and a link</a>."
ATTRIBUTES = b"<a " + b" ".join(b"a%d=1" % number for number in range(60_000)) + b">"
BOLD = b"".join(b"<b id=%d>" % number for number in range(4_000)) + b"<p>x" * 40_000


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """Each test begins and ends without processes."""
    workers("markup").close()
    yield
    workers("markup").close()


async def read(data: bytes, kind: str = "text/html") -> Document:
    return await convert(PageBody("https://a.example/", kind, data))


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
    seen = [await read(PAGE) for _ in range(3)]
    assert seen == [convert_body(PageBody("https://a.example/", "text/html", PAGE), "html")] * 3
    assert len(free()) == 1
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
        "MAX_MEMORY, MAX_PDF_MEMORY = 1024**3": "MAX_MEMORY, MAX_PDF_MEMORY = 300 * 1024**2",
    }
    monkeypatch.setattr(processes, "_COMMAND", program_with(changed, tmp_path))
    before = children()
    with pytest.raises(PageError, match="too much time or memory"):
        await read(page)
    assert children() == before
    assert (await read(PAGE)).title == "A page"


async def test_a_process_that_has_ended_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = program_with({"IDLE_SECONDS = 300.0": "IDLE_SECONDS = 0.3"}, tmp_path)
    monkeypatch.setattr(processes, "_COMMAND", command)
    assert (await read(PAGE)).title == "A page"
    [pid] = free()
    await asyncio.sleep(1.5)
    assert (await read(PAGE)).title == "A page"
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
        await read(PAGE)


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
    await read(PAGE)
    [first] = free()
    await read(PAGE)
    assert free() == []
    await read(PAGE)
    assert free() != [first]


def test_files_of_a_folder_are_read_there_too(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(PAGE)
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
