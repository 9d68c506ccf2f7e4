"""The Python of structured-output.md, python-tool.md and background.md, typed as it stands but for the port.

It prints what the page shows.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.pages.names import shared_names
from tests.doubles.server_process import Served, serving
from tests.e2e.test_tutorial import ADDRESS, blocks
from tests.tools.python.conftest import bubblewrap

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.mark.parametrize(
    ("page", "checked"), [("structured-output", 3), ("python-tool", 1), ("background", 2)]
)
def test_each_block_prints_what_its_page_shows(served: Served, page: str, checked: int) -> None:
    if page == "python-tool":
        bubblewrap()
    found = [block for block in blocks(DOCS / f"{page}.md") if block.language == "python"]
    assert sum(block.shown is not None for block in found) == checked
    with shared_names() as names:
        for block in found:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(block.code.replace(ADDRESS, served.url), names)
            if block.shown is not None:
                assert printed.getvalue().split() == block.shown.split()
