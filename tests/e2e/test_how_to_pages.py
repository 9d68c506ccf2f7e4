"""The Python of structured-output.md, python-tool.md and background.md, typed as it stands but for the port.

It prints what the page shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.pages.blocks import with_shown
from tests.doubles.pages.typed import run_python, shared_names
from tests.doubles.server_process import Served, serving
from tests.tools.python.conftest import needs_bubblewrap


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--python", "auto") as served:
        yield served


@pytest.mark.parametrize(
    ("page", "checked"), [("structured-output", 3), ("python-tool", 1), ("background", 2)]
)
def test_each_block_prints_what_its_page_shows(served: Served, page: str, checked: int) -> None:
    if page == "python-tool":
        needs_bubblewrap()
    found = [(block, shown) for block, shown in with_shown(f"docs/{page}.md") if block.language == "python"]
    assert sum(shown is not None for _, shown in found) == checked
    with shared_names() as names:
        for block, shown in found:
            printed = run_python(block, served, names)
            if shown is not None:
                assert printed.split() == shown.split()
