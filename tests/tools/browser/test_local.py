"""A local folder as the web: searched by words, opened by stable addresses, and nothing outside of it."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.tools.shelf import call, failure
from tests.doubles.tools.web_servers import pdf
from tools.browser import BrowserTool
from tools.browser.backends.local import LocalBackend
from tools.browser.session import BrowserSession
from tools.tool import ToolOutput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "the docs"
    (root / "guide").mkdir(parents=True)
    links = "[tuning](../tuning.html#x) or [more](https://b.example/)"
    filler = "filler\n" * 500
    for name, text in {
        "guide/set up.md": f"# Setting up\n\nInstall the harvester, then read {links}.\n",
        "tuning.html": "<title>Tuning</title><p>Turn the flux knob. <a href='guide/set%20up.md'>Back</a>",
        "notes.txt": f"{filler}The rare zanzibar passage is here.\n{filler}",
        "東京.md": "# 東京案内\n\n東京は日本の首都です。\n",
        ".hidden.md": "harvester",
        "photo.png": "harvester",
    }.items():
        (root / name).write_text(text)
    (tmp_path / "secret.md").write_text("harvester secret")
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    (root / "loop.md").symlink_to(root / "loop.md")
    return root


@pytest.fixture
def papers(folder: Path) -> None:
    (folder / "paper.pdf").write_bytes(pdf("Photosynthesis in cacti", title="Cacti"))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")


@pytest.fixture
async def session(folder: Path) -> AsyncIterator[BrowserSession]:
    tool = BrowserTool(LocalBackend(folder))
    yield tool.open()
    await tool.close()


def found(output: ToolOutput) -> list[str]:
    assert not output.failed, output.text
    return [hit["url"] for hit in output.details["results"]]


async def test_search_open_follow_a_link_and_find(session: BrowserSession) -> None:
    output = await call(session, "search", query="How do I install the harvester?")
    assert found(output) == ["local:///guide/set%20up.md"]
    page = await call(session, "open", id=0)
    assert page.text.startswith("[1] Setting up (local:///guide/set up.md)\n")
    assert page.details["action"]["url"] == "local:///guide/set%20up.md"
    assert "read 【0†tuning】" in page.text
    assert "or 【1†more†b.example】" in page.text
    tuning = await call(session, "open", id=0)
    assert tuning.text.startswith("[2] Tuning (local:///tuning.html)")
    assert (await call(session, "open", id=0)).text.startswith("[3] Setting up")
    assert "Turn the flux knob" in (await call(session, "find", pattern="FLUX", cursor=2)).text
    assert session.resolve(4) == ("local:///tuning.html", "Tuning")


@pytest.mark.usefixtures("papers")
@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("photosynthesis", "paper.pdf"),
        ("broken", "broken.pdf"),
        ("日本", "%E6%9D%B1%E4%BA%AC.md"),
        ("首都はどこ", "%E6%9D%B1%E4%BA%AC.md"),
        ("knobs turned", "tuning.html"),
    ],
)
async def test_files_are_found_by_their_words_or_names(
    session: BrowserSession, query: str, path: str
) -> None:
    assert found(await call(session, "search", query=query)) == [f"local:///{path}"]


async def test_a_long_document_opens_at_the_passage_that_was_found(session: BrowserSession) -> None:
    output = await call(session, "search", query="zanzibar")
    assert output.details["results"][0]["snippet"].startswith("The rare zanzibar passage is here.")
    assert "L502: The rare zanzibar passage is here." in (await call(session, "open", id=0)).text


@pytest.mark.usefixtures("papers")
async def test_a_pdf_is_opened_and_a_broken_one_explained(session: BrowserSession) -> None:
    assert "Photosynthesis in cacti" in (await call(session, "open", id="local:///paper.pdf")).text
    assert "could not be read" in await failure(session, "open", id="local:///broken.pdf")


@pytest.mark.parametrize(
    "url",
    [
        "local:///../secret.md", "local:///%2e%2e/secret.md", "local:///link.md", "local:///.hidden.md",
        "local:///photo.png", "local:///guide", "local:///", "local:////etc/passwd", "local://etc/passwd",
        "local:///guide/../../secret.md", "local:///tuning.html%00", "file:///etc/passwd", "http://127.0.0.1/",
        "https://b.example/", "/etc/passwd",
    ],
)  # fmt: skip
async def test_nothing_outside_of_the_folder_is_opened(
    session: BrowserSession, folder: Path, url: str
) -> None:
    output = await call(session, "open", id=url)
    assert output.failed
    assert "harvester" not in output.text
    assert str(folder.parent) not in output.text


async def test_hidden_files_and_links_out_of_the_folder_are_not_found(session: BrowserSession) -> None:
    assert found(await call(session, "search", query="secret")) == []
    assert len(found(await call(session, "search", query="harvester"))) == 1


async def test_no_answer_holds_the_folders_own_path(session: BrowserSession, folder: Path) -> None:
    outputs = [
        await call(session, "search", query="harvester flux"),
        await call(session, "open", id=0),
        await call(session, "open", id=0, view_source=True),
        await call(session, "find", pattern="e"),
    ]
    for output in outputs:
        assert str(folder.parent) not in output.text + json.dumps(dict(output.details))


async def test_changed_new_and_deleted_files_are_noticed(session: BrowserSession, folder: Path) -> None:
    assert found(await call(session, "search", query="walrus")) == []
    (folder / "new.txt").write_text("a walrus")
    assert found(await call(session, "search", query="walrus")) == ["local:///new.txt"]
    (folder / "new.txt").write_text("a heron")
    os.utime(folder / "new.txt", ns=(1, 1))
    assert found(await call(session, "search", query="walrus")) == []
    assert "a heron" in (await call(session, "open", id="local:///new.txt")).text
    (folder / "new.txt").unlink()
    assert found(await call(session, "search", query="heron")) == []
    assert (await call(session, "open", id="local:///new.txt")).failed


@pytest.mark.parametrize(
    "query", ['"', "NEAR(a b)", "a AND", "harvester*", "-", "title:x OR", "'; DROP TABLE files; --", "é̈"]
)
async def test_no_query_is_a_syntax_error(session: BrowserSession, query: str) -> None:
    output = await call(session, "search", query=query)
    assert not output.failed or "holds no words" in output.text


async def test_a_domain_filter_does_not_apply_to_local_files(session: BrowserSession) -> None:
    options = {"filters": {"allowed_domains": ["b.example"]}}
    assert len(found(await call(session, "search", query="harvester", options=options))) == 1
    assert not (await call(session, "open", id=0, options=options)).failed


async def test_indexing_leaves_the_event_loop_free_and_ends_when_closed(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n" + "some words and more\n" * 2_000)
    tool = BrowserTool(LocalBackend(tmp_path))
    work = asyncio.create_task(call(tool.open(), "search", query="words"))
    gaps, last = [], time.perf_counter()
    while len(gaps) < 200 and not work.done():
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - last)
        last = time.perf_counter()
    await tool.close()
    await work
    assert sorted(gaps)[int(len(gaps) * 0.99)] < 0.1


async def test_a_name_that_is_not_utf8_is_found_and_opened_and_hides_no_other_document(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9 menu.txt")).write_text("The harvester eats here.")
    tool = BrowserTool(LocalBackend(folder))
    session = tool.open()
    urls = found(await call(session, "search", query="harvester"))
    assert sorted(urls) == ["local:///caf%E9%20menu.txt", "local:///guide/set%20up.md"]
    for place in (urls.index("local:///caf%E9%20menu.txt"), "local:///caf%E9%20menu.txt"):
        opened = await call(session, "open", id=place)
        assert "caf\ufffd menu.txt" in opened.text
        assert "eats here" in opened.text
    assert (await call(session, "open", id="local:///caf%E8%20menu.txt")).failed
    await tool.close()
