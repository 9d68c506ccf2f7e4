"""The tutorial, typed as it stands, except for the port: each block prints what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

import pytest

from tests.doubles.commands import run_script
from tests.doubles.pages.blocks import ROOT, with_shown
from tests.doubles.pages.typed import run_curl, run_python, shared_names
from tests.doubles.server_process import Served, serving
from tests.tools.python.conftest import needs_bubblewrap

_DATE = re.compile(r"(?<=Current date: )\S+")


def run_example(path: str, served: Served) -> str:
    """With the scripted server that it would start."""
    examples = ROOT / "examples"
    model, browser = f"scripted:{examples / 'script.json'}", f"local:{examples / 'documents'}"
    with serving("--model", model, "--browser", browser) as scripted:
        env = {"OPENAI_BASE_URL": served.api, "TOUR_BASE_URL": scripted.api}
        done = run_script(ROOT / path, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--python", "auto") as served:
        yield served


@pytest.mark.slow
def test_every_block_prints_what_the_page_shows(served: Served) -> None:
    needs_bubblewrap()
    checked = 0
    with shared_names() as names:
        for block, shown in with_shown("docs/tutorial.md"):
            if block.language == "python":
                found = run_python(block, served, names)
            elif block.code.startswith("curl"):
                found = run_curl(block.code, served)
            elif block.code.startswith(".venv/bin/python"):
                found = run_example(block.code.split()[1], served)
            else:
                continue  # starts the server
            if shown is not None:
                assert found.rstrip() == _DATE.sub(date.today().isoformat(), shown).rstrip()
                checked += 1
    assert checked == 9
