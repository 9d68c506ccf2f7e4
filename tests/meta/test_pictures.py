"""The pictures of the docs are drawn from real turns: drawn again, they are the same."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.pictures.__main__ import FOLDER as IMAGES
from docs.pictures.__main__ import pictures
from gpt_oss_server.harmony.events import SlipKind

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOST_BYTES = 40_000


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return pictures()


def test_each_picture_shows_what_the_server_does_now(drawn: dict[str, str]) -> None:
    stored = {path.stem: path.read_text(encoding="utf-8") for path in IMAGES.glob("*.svg")}
    assert stored == drawn, "run `python -m docs.pictures`"


def test_each_picture_is_small_has_words_for_it_and_stands_on_a_page(drawn: dict[str, str]) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    for name, svg in drawn.items():
        root = ElementTree.fromstring(svg)
        assert len(svg.encode()) < MOST_BYTES
        assert [child.tag.partition("}")[2] for child in root[:2]] == ["title", "desc"]
        assert "prefers-color-scheme:dark" in svg
        assert f"](images/{name}.svg)" in pages


def test_the_page_on_slips_has_every_kind() -> None:
    page = (DOCS / "slips.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    written = [name for row in rows for name in re.findall(r"`(\w+)`", row) if name != "metadata"]
    assert sorted(written) == sorted(str(kind) for kind in SlipKind)
